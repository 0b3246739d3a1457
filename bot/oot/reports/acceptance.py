"""Acceptance of reports, any number in one transaction, within the quotas of each backend."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from aiohttp import web

from bot.core import metrics
from bot.core.clock import JITTER
from bot.core.errors import Rejected, StoreUnavailable
from bot.db import installation
from bot.db.db_errors import REQUEST_TIMEOUT
from bot.db.group_commit import GroupCommit
from bot.db.store import LOCK_TIMEOUT
from bot.oot.allowlist import versions
from bot.oot.reports import authorization, lifecycle, rows
from bot.oot.reports.authorization import TrustedJob, check_callback_token, find_entry
from bot.oot.reports.bodies import Accepted
from bot.oot.reports.report import Malformed, parse_report
from bot.oot.results import jobs, task_keys
from bot.oot.results.task_keys import request_publish
from bot.web.access import CONTEXT
from bot.web.bodies import SMALL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.reports.authorization import ClaimedCommit, ReportLookup, Submission
    from bot.oot.reports.report import CheckedEnvelope
    from bot.oot.reports.rows import PingRow
    from bot.oot.results.tables import JobChange, JobRow

Answer = Accepted | Rejected
MOST_TRIES = 3  # when others report on the same new job at the same moment
CONFIRM_AFTER = 5  # seconds: a job that reports is still running, GitHub shows its end a little later
MINUTE, HOUR = 60, 3600  # seconds
NEW_COMMITS = 60  # an hour and backend: each may cost some of the calls that GitHub allows us upstream
MOST_JOBS = 1_000  # of one dispatch, or of one backend on one commit of a run that was not dispatched
# characters of failed tests of these: the page of the pull request or commit reads them
MOST_TESTS = 4_000_000
WIDENED = 2  # times as long failed tests are stored at most: PostgreSQL puts spaces between them
log = structlog.get_logger("bot.oot.reports")
MAX_REPORTS = 500  # of one batch
PAUSE = 0.004  # seconds between two commits while reports queue up: a batch takes as many statements as one report
PING_PREFIX = "ping-"
LONGEST_PING_ID = 500  # characters of a reason


@dataclass(frozen=True, kw_only=True)
class AcceptanceOutcome:
    """Results of some reports, to be announced after commit."""

    answers: list[Answer]  # in order
    contradictions: list[tuple[str, str]]  # delivery and field


@dataclass(frozen=True, kw_only=True)
class _Share:
    """How much of something is accepted in a span of time."""

    key: str  # what it is counted under
    most: int
    window: int  # seconds
    rule: str  # for the message when it is used up
    amount: int = 1  # that this report needs


async def accept_reports(
    tx: Transaction, settings: Settings, submissions: Sequence[Submission]
) -> AcceptanceOutcome:
    """Accept backends' reports as if one came after the other."""
    lookup = await authorization.look_up_reports(tx, settings, submissions)
    judged = [_judged(lookup, submission) for submission in submissions]
    admitted = {at: job for at, job in enumerate(judged) if isinstance(job, TrustedJob)}
    rates = await RateQuota.read(tx, admitted.values())
    begun = await _begun(tx, admitted.values()) if settings.queue_times == "first" else None
    recorded = await _record_reports(tx, admitted, rates, begun)
    answers = [recorded[at] if isinstance(result, TrustedJob) else result for at, result in enumerate(judged)]
    await rows.record_accepted(tx, rates.accepted)
    taken = {at for at in admitted if not isinstance(answers[at], Rejected)}
    await rows.record_use(tx, {key for at in taken if (key := submissions[at].claims.key_id)})
    wrong = [
        (job.report.delivery_id, name)
        for job in admitted.values()
        for name in authorization.mismatched_fields(job.row["flags"])
    ]
    return AcceptanceOutcome(answers=answers, contradictions=wrong)


async def accept_relayed(tx: Transaction, settings: Settings, envelope: CheckedEnvelope) -> Answer:
    """Accept what an outside relay passes on; returns the answer."""
    job = authorization.admit_relayed(settings, envelope)
    rates = await RateQuota.read(tx, [job])
    answers = await _record_reports(tx, {0: job}, rates)
    await rows.record_accepted(tx, rates.accepted)
    return answers[0]


@dataclass(kw_only=True)
class RateQuota:
    """How many reports and new commits were accepted of callers lately, and what is accepted now."""

    spent: Mapping[str, tuple[int, int]]  # count, second of the oldest
    named: set[tuple[str, str]]  # commits, as Job.unasked, that were reported on before: they count once
    bytes_of: Mapping[str, int]  # by caller, of failed tests: in the last hour and in these reports
    taken: Counter[str] = field(default_factory=Counter)  # here and now

    @classmethod
    async def read(cls, tx: Transaction, new: Collection[TrustedJob]) -> RateQuota:
        """Read what the callers of these jobs have used up, locked against others until the transaction ends."""
        reports = {share.key for job in new if (share := _share_of_reports(job))}
        tests = [(job.caller, share) for job in new if (share := _share_of_bytes(job))]
        hourly = {share.key for job in new if (share := _share_of_commits(job))} | {
            share.key for _, share in tests
        }
        await rows.lock_callers(tx, reports | hourly)
        spent = await rows.read_lately(tx, minutely=reports, hourly=hourly)
        bytes_of = Counter({caller: spent.get(share.key, (0, 0))[0] for caller, share in tests})
        for caller, share in tests:
            bytes_of[caller] += share.amount
        named = set(await rows.count_undispatched_jobs(tx, _commits(new)))
        return cls(spent=spent, named=named, bytes_of=bytes_of)

    @property
    def accepted(self) -> dict[str, int]:
        """How much of each share was used and not given back."""
        return {key: count for key, count in self.taken.items() if count > 0}

    def check(self, job: TrustedJob, now: int) -> None:
        """Raise Rejected 429 when the caller has used up a share."""
        shares = [
            _share_of_reports(job),
            None if job.names in self.named else _share_of_commits(job),
            _share_of_bytes(job),
        ]
        taken = [share for share in shares if share]
        for share in taken:
            count, oldest = self.spent.get(share.key, (0, now // 1000))
            if count + self.taken[share.key] + share.amount > share.most:
                wait = max(oldest + share.window - now // 1000, 1)
                detail = f"{share.rule}: send this one again in {wait} s"
                raise Rejected(429, "rate_limited", detail, headers={"Retry-After": str(wait)})
        self.taken.update({share.key: share.amount for share in taken})
        if job.names:
            self.named.add(job.names)

    def tests_certainly_fit(self, job: TrustedJob, now: int) -> bool:
        """Whether a job's tests fit without counting what its dispatch holds: all its caller sent since then fits."""
        # what is later than now was noted by a clock that was ahead
        oldest, latest = now - (HOUR - MINUTE) * 1000, now + JITTER
        if job.dispatched_at is None or not oldest <= job.dispatched_at <= latest:
            return False
        return job.caller in self.bytes_of and self.bytes_of[job.caller] * WIDENED <= MOST_TESTS

    def give_back(self, job: TrustedJob) -> None:
        """Take back a report that is judged again; its commit and its bytes stay counted."""
        self.taken[job.caller] -= 1


@dataclass(kw_only=True)
class SizeQuota:
    """Jobs and failed tests stored for a dispatch, or for (backend, commit) of a run that was not dispatched."""

    jobs: Counter[str | tuple[str, str]] = field(default_factory=Counter)
    tests: Counter[str | tuple[str, str]] = field(default_factory=Counter)  # characters

    @classmethod
    async def read(
        cls, tx: Transaction, reported: Collection[TrustedJob], rates: RateQuota, *, known: Collection[str]
    ) -> SizeQuota:
        """Read how much is stored for the dispatches and commits of these reports, where it could be too much.

        Jobs with a `known` key are not new.
        """
        new = [job for job in reported if job.key not in known]
        failing = [
            job
            for job in reported
            if job.report.job["failed_tests_json"] and not rates.tests_certainly_fit(job, tx.now)
        ]
        sizes = cls()
        sizes.jobs.update(await jobs.count_jobs(tx, _dispatches(new)))
        sizes.tests.update(await jobs.read_lengths_of_tests(tx, _dispatches(failing)))
        sizes.jobs.update(await rows.count_undispatched_jobs(tx, _commits(new)))
        sizes.tests.update(await rows.measure_undispatched_tests(tx, _commits(failing)))
        return sizes

    def check(self, job: TrustedJob) -> None:
        """Raise Rejected 413 if a new job would exceed the limit."""
        place = _place(job)
        if place is not None and self.jobs[place] >= MOST_JOBS:
            what = "commit" if job.unasked else "dispatch"
            detail = f"this {what} has {MOST_JOBS} jobs: report on fewer, or on all of them as one"
            raise Rejected(413, "too_many_jobs", detail)

    def enter(self, job: TrustedJob) -> None:
        """Count a new job that was accepted: one refused for another reason takes no space."""
        if (place := _place(job)) is not None:
            self.jobs[place] += 1

    def fitting(self, job: TrustedJob, change: JobChange) -> JobChange:
        """Return a change without the failed tests that do not fit; their count stays."""
        tests, place = change.get("failed_tests_json"), _place(job)
        if not tests or not place:
            return change
        size = len(msgspec.json.encode(tests))
        if self.tests[place] + size > MOST_TESTS:
            fitting, flags = change.copy(), change["flags"]
            del fitting["failed_tests_json"]
            fitting["flags"] = flags | {
                "failed_tests_dropped": flags.get("failed_tests_dropped", 0) + len(tests)
            }
            return fitting
        self.tests[place] += size
        return change


class ReportBatcher:
    """Accepts the reports of all requests."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._group: GroupCommit[Sequence[Submission], list[Answer]] = GroupCommit(
            self._write, max_items=MAX_REPORTS, max_size=MAX_REPORTS, size=len, pause=PAUSE
        )

    async def accept(self, submissions: Sequence[Submission]) -> list[Answer]:
        """Accept one request's reports: stored before the answers return. Raises StoreUnavailable."""
        return await self._group.put(submissions)

    async def _write(self, requests: Sequence[Sequence[Submission]]) -> list[list[Answer]]:
        async with self._context.store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
            reports = [report for submissions in requests for report in submissions]
            taken = await accept_reports(tx, self._context.settings, reports)
        for delivery, name in taken.contradictions:
            metrics.MISMATCHES.labels(name).inc()
            log.warning("a report contradicts its token or dispatch", field=name, delivery=delivery[:100])
        answers = iter(taken.answers)
        return [[next(answers) for _ in submissions] for submissions in requests]


REPORT_BATCHER: web.AppKey[ReportBatcher] = web.AppKey("report_batcher", ReportBatcher)


def is_ping(delivery_id: str) -> bool:
    """Whether a delivery id is that of a ping: GitHub's are UUIDs, commits are hexadecimal."""
    return delivery_id.startswith(PING_PREFIX)


def ping_as_dispatch(row: PingRow) -> Mapping[str, Any]:
    """Return a ping as the dispatch that its callback token is made of."""
    return {**row, "delivery_id": row["id"], "pr_number": None, "head_sha": None}


async def accept_ping_report(context: Context, submission: Submission) -> Accepted:
    """Store a report on a ping; raises Rejected as for any report."""
    report, claims = submission.report, submission.claims
    async with context.store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        entry = find_entry(await versions.read_in_force(tx), context.settings, claims)
        if entry is None:
            return Accepted(status="ignored")
        row = await rows.get_ping(tx, report.delivery_id)
        if row is None or row["backend_key"] != entry.key or row["sent_at"] is None:
            detail = f"ping {report.delivery_id[:100]} was never sent to {entry.repo}"
            raise Rejected(404, "unknown_dispatch", detail)
        key = await installation.random_key(tx, "callback")
        check_callback_token(entry, ping_as_dispatch(row), report, key=key, now=tx.now)
        status = report.job["status"]
        if row["completed_at"] is not None or (status == "in_progress" and row["started_at"] is not None):
            return Accepted(status=status, duplicate=True)
        changed: dict[str, Any] = {"run_id": claims.run_id or report.job["run_id"]}
        if status == "completed":
            changed |= {"completed_at": tx.now, "conclusion": report.job["conclusion"]}
        else:
            changed["started_at"] = tx.now
        await rows.change_ping(tx, row["id"], **changed)
    return Accepted(status=status)


async def note_ping_refusal(request: web.Request, refusal: Rejected, body: bytes) -> None:
    """Store why a report on a ping was refused, to show it with the ping.

    Its callback token proves that it answers the ping, even where its OpenID token does not say whose it is. A body
    that has not arrived yet is not waited for.
    """
    length = request.content_length
    if not body and length is not None and length <= SMALL and request.content.is_eof():
        body = request.content.read_nowait()
    if f'"{PING_PREFIX}'.encode() not in body:
        return
    with contextlib.suppress(Malformed, StoreUnavailable):
        report = parse_report(body)
        if is_ping(report.delivery_id):
            await _note_on_ping(request.app[CONTEXT], report.delivery_id, report.callback_token, refusal)


def _judged(lookup: ReportLookup, submission: Submission) -> TrustedJob | Answer:
    try:
        return authorization.admit_report(lookup, submission) or Accepted(status="ignored")
    except Rejected as refusal:
        return refusal


async def _record_reports(
    tx: Transaction,
    reported: Mapping[int, TrustedJob],
    rates: RateQuota,
    begun: set[tuple[str, str]] | None = None,
    tries: int = MOST_TRIES,
) -> dict[int, Answer]:
    """Write the reports to their jobs; rows that another transaction inserted in the meantime are read again.

    `begun` are the runs with reported jobs: only the first job has a queue time; None: all runs have reported.
    """
    present = await jobs.get_jobs(tx, {job.key for job in reported.values()})
    sizes = await SizeQuota.read(tx, reported.values(), rates, known=present.keys())
    rows = dict(present)
    answers = {at: _apply_report(job, rows, rates, sizes, begun, now=tx.now) for at, job in reported.items()}
    lost = await jobs.add_jobs(tx, {key: row for key, row in rows.items() if key not in present})
    await jobs.change_jobs(tx, {key: rows[key] for key, row in present.items() if rows[key] is not row})
    overtaken = {at: job for at, job in reported.items() if job.key in lost}
    for at, job in reported.items():
        if at not in overtaken:
            _follow_up(tx, job, answers[at])
        elif not isinstance(answers[at], Rejected):
            rates.give_back(job)
    if overtaken and tries > 1:
        return answers | await _record_reports(tx, overtaken, rates, begun, tries - 1)
    busy = Rejected(
        503, "busy", "this job is being reported on elsewhere: send it again", headers={"Retry-After": "1"}
    )
    return answers | dict.fromkeys(overtaken, busy)


async def _begun(tx: Transaction, reported: Iterable[TrustedJob]) -> set[tuple[str, str]]:
    """Return which of the reported runs had a reported job before, by dispatch and id."""
    runs = {(job.row["dispatch_id"], job.row["run_id"]) for job in reported if job.row["dispatch_id"]}
    return await jobs.known_runs(tx, {(dispatch, run) for dispatch, run in runs if dispatch})


def _apply_report(
    job: TrustedJob,
    rows: dict[str, JobRow],
    rates: RateQuota,
    sizes: SizeQuota,
    begun: set[tuple[str, str]] | None,
    *,
    now: int,
) -> Answer:
    """Change a job's row in `rows` to what the report says, if it may."""
    present = rows.get(job.key)
    try:
        run = (job.row["dispatch_id"] or "", job.row["run_id"])
        change = lifecycle.decide_change(
            present,
            job.report,
            now=now,
            dispatched_at=job.dispatched_at,
            waited=begun is None or run not in begun,
        )
        if job.measured:
            change = lifecycle.with_measured_times(present, change, job.measured, now=now)
        if present is None:
            sizes.check(job)
        rates.check(job, now)
    except lifecycle.Conflict as error:
        if job.first_stands:
            return Accepted(status=job.report.job["status"], duplicate=True)
        return Rejected(409, "conflict", str(error))
    except Rejected as refusal:
        return refusal
    if change is None:
        return Accepted(status=job.report.job["status"], duplicate=True)
    if begun is not None:
        begun.add(run)
    if present is None:
        sizes.enter(job)
    values = sizes.fitting(job, change)
    values["flags"] = _origin_flags(job, present) | values["flags"]
    rows[job.key] = jobs.whole_row(present or job.row, values)
    return Accepted(status=job.report.job["status"])


def _origin_flags(job: TrustedJob, present: JobRow | None) -> dict[str, Any]:
    """Return the flags that a report's origin adds; a commit that was looked up stays looked up."""
    flags = job.row["flags"]
    settled = present is not None and "unverified" not in present["flags"]
    return {name: value for name, value in flags.items() if not (settled and name == "unverified")}


def _follow_up(tx: Transaction, job: TrustedJob, answer: Answer) -> None:
    """Enqueue the tasks a change makes necessary."""
    row = job.row
    if isinstance(answer, Rejected) or answer.duplicate:
        return
    if row["dispatch_id"]:
        request_publish(tx, row["upstream_repo"], row["pr_number"])
    if job.names:
        tx.enqueue("verify_commit", job.names.commit)
    if job.confirm and job.report.job["status"] == "completed":
        key = task_keys.run_key(row["downstream_repo"], row["run_id"], row["run_attempt"])
        tx.enqueue("confirm", key, delay=CONFIRM_AFTER)


def _share_of_reports(job: TrustedJob) -> _Share | None:
    if job.limit is None:
        return None
    rule = f"{job.caller} may send {job.limit} reports a minute"
    return _Share(key=job.caller, most=job.limit, window=MINUTE, rule=rule)


def _share_of_commits(job: TrustedJob) -> _Share | None:
    if job.names is None:
        return None
    backend = job.names.backend
    rule = f"{backend} may report on {NEW_COMMITS} commits an hour that were not dispatched to it"
    return _Share(key=f"commits of {backend}", most=NEW_COMMITS, window=HOUR, rule=rule)


def _share_of_bytes(job: TrustedJob) -> _Share | None:
    """Return the share of the database: failed tests are what makes a report large."""
    if job.byte_limit is None or not job.report.job["failed_tests_json"]:
        return None
    rule = f"{job.caller} may report {job.byte_limit / 1_000_000:,.0f} MB of failed tests an hour"
    size = len(msgspec.json.encode(job.report.job["failed_tests_json"]))
    return _Share(key=f"bytes of {job.caller}", most=job.byte_limit, window=HOUR, rule=rule, amount=size)


def _place(job: TrustedJob) -> str | ClaimedCommit | None:
    """Return what a job is counted under; None for relayed jobs of a pull request: the relay limits those itself."""
    return job.row["dispatch_id"] or job.unasked


def _dispatches(new: Iterable[TrustedJob]) -> set[str]:
    return {key for job in new if (key := job.row["dispatch_id"])}


def _commits(new: Iterable[TrustedJob]) -> set[rows.Commit]:
    return {job.unasked for job in new if job.unasked}


async def _note_on_ping(context: Context, identifier: str, token: str | None, refusal: Rejected) -> None:
    async with context.store.read(answer_within=REQUEST_TIMEOUT) as tx:
        row = await rows.get_ping(tx, identifier)
        key = await installation.random_key(tx, "callback") if row else b""
        now = tx.now
    words = f"{refusal.status} {refusal.code}: {refusal.detail}"[:LONGEST_PING_ID]
    if row is None or row["refusal"] == words:
        return
    if authorization.token_belongs(token, ping_as_dispatch(row), key, now=now):
        async with context.store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
            await rows.change_ping(tx, identifier, refused_at=tx.now, refusal=words)
