"""What do reports change? Any number of them in one transaction; one merge for both doors.

A refusal is returned, not raised: one report's never touches another's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from bot import trust
from bot.domain import contradiction, lifecycle
from bot.errors import Rejected
from bot.store import jobs, keys
from bot.store.commits import named
from bot.trust import Job

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.domain.envelope import Envelope
    from bot.settings import Settings
    from bot.store import Transaction
    from bot.trust import Given, Known

Row = dict[str, Any]
Answer = Row | Rejected
MINUTE, HOUR = 60, 3600  # seconds
NEW_COMMITS = 60  # an hour and backend: each may cost some of the calls that GitHub allows us upstream
MOST_JOBS = 1_000  # of one dispatch
MOST_TESTS = (
    4_000_000  # characters of failed tests of one dispatch: every look at its pull request reads them
)
MOST_TRIES = 3  # against others who tell of the same new job at the same moment
CONFIRM_AFTER = 5  # seconds: a job that reports is still running, so GitHub's word comes a little later


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What became of some reports, to be told once it is committed."""

    answers: list[Answer]  # in order
    contradictions: list[tuple[str, str]]  # delivery and field of what was said wrongly


async def accept(tx: Transaction, settings: Settings, given: Sequence[Given]) -> Taken:
    """Take backends' reports as if one came after the other."""
    known = await trust.look_up(tx, settings, given)
    judged = [_judged(known, one) for one in given]
    admitted = {at: job for at, job in enumerate(judged) if isinstance(job, Job)}
    meter = await _meter(tx, admitted.values())
    recorded = await _record(tx, admitted, meter)
    answers = [recorded[at] if isinstance(said, Job) else said for at, said in enumerate(judged)]
    await jobs.count_accepted(tx, +meter.taken)
    taken = {at for at in admitted if not isinstance(answers[at], Rejected)}
    await keys.used(tx, {key for at in taken if (key := given[at].claims.key_id)})
    wrong = [
        (job.report.delivery_id, name)
        for job in admitted.values()
        for name in contradiction.named(job.row["flags"])
    ]
    return Taken(answers=answers, contradictions=wrong)


async def relay(tx: Transaction, envelope: Envelope) -> Answer:
    """Take what an outside relay passes on; returns the answer."""
    job = trust.relayed(envelope)
    meter = await _meter(tx, [job])
    answers = await _record(tx, {0: job}, meter)
    await jobs.count_accepted(tx, +meter.taken)
    return answers[0]


@dataclass(frozen=True, kw_only=True)
class _Share:
    """How much of something is accepted in a span of time."""

    key: str  # what it is counted under
    most: int
    window: int  # seconds
    rule: str  # as it is told to whoever has used it up


def _of_reports(job: Job) -> _Share | None:
    if job.limit is None:
        return None
    rule = f"{job.caller} may send {job.limit} reports a minute"
    return _Share(key=job.caller, most=job.limit, window=MINUTE, rule=rule)


def _of_commits(job: Job) -> _Share | None:
    if job.names is None:
        return None
    backend, _ = job.names
    rule = f"{backend} may report on {NEW_COMMITS} commits an hour that it was not told of"
    return _Share(key=f"commits of {backend}", most=NEW_COMMITS, window=HOUR, rule=rule)


async def _meter(tx: Transaction, told: Collection[Job]) -> _Meter:
    """Return what these jobs' callers have used up; nobody else takes of it until the transaction ends."""
    reports = {share.key for job in told if (share := _of_reports(job))}
    commits = {share.key for job in told if (share := _of_commits(job))}
    await jobs.take_turns(tx, reports | commits)
    spent = await jobs.accepted_lately(tx, reports, window=MINUTE)
    spent |= await jobs.accepted_lately(tx, commits, window=HOUR)
    return _Meter(spent=spent, named=await named(tx, {job.names for job in told if job.names}))


@dataclass(kw_only=True)
class _Meter:
    """What callers have used up of their shares."""

    spent: Mapping[str, tuple[int, int]]  # count, second of the oldest
    named: set[tuple[str, str]]  # commits, as Job.names, that were reported on before: they count once
    taken: Counter[str] = field(default_factory=Counter)  # here and now

    def check(self, job: Job, now: int) -> None:
        """Raise Rejected 429 when the caller has used up a share."""
        shares = [_of_reports(job), None if job.names in self.named else _of_commits(job)]
        taken = [share for share in shares if share]
        for share in taken:
            count, oldest = self.spent.get(share.key, (0, now // 1000))
            if count + self.taken[share.key] >= share.most:
                wait = max(oldest + share.window - now // 1000, 1)
                detail = f"{share.rule}: send this one again in {wait} s"
                raise Rejected(429, "rate_limited", detail, headers={"Retry-After": str(wait)})
        self.taken.update(share.key for share in taken)
        if job.names:
            self.named.add(job.names)


@dataclass(kw_only=True)
class _Room:
    """What the dispatches that are reported on hold: one backend's words shall not be a load for all others."""

    jobs: Counter[str] = field(default_factory=Counter)  # by the dispatch's id
    tests: Counter[str] = field(default_factory=Counter)  # characters

    @classmethod
    async def of(cls, tx: Transaction, told: Iterable[Job]) -> _Room:
        """Look at the dispatches of some reports."""
        held = await jobs.held(tx, {key for job in told if (key := job.row.get("dispatch_id"))})
        return cls(
            jobs=Counter({key: count for key, (count, _) in held.items()}),
            tests=Counter({key: tests for key, (_, tests) in held.items()}),
        )

    def check(self, job: Job, *, new: bool) -> None:
        """Raise Rejected 413 when a dispatch gets more jobs than it may have."""
        dispatch = job.row.get("dispatch_id")
        if not new or dispatch is None:
            return
        if self.jobs[dispatch] >= MOST_JOBS:
            detail = f"this dispatch has {MOST_JOBS} jobs: report on fewer, or on all of them as one"
            raise Rejected(413, "too_many_jobs", detail)
        self.jobs[dispatch] += 1

    def fitting(self, job: Job, values: Row) -> Row:
        """Return a job's columns without failed tests for which there is no room; how many there are stays."""
        tests, dispatch = values.get("failed_tests_json"), job.row.get("dispatch_id")
        if not tests or not dispatch:
            return values
        size = len(msgspec.json.encode(tests))
        if self.tests[dispatch] + size > MOST_TESTS:
            dropped = values["flags"].get("failed_tests_dropped", 0) + len(tests)
            kept = {name: value for name, value in values.items() if name != "failed_tests_json"}
            return kept | {"flags": values["flags"] | {"failed_tests_dropped": dropped}}
        self.tests[dispatch] += size
        return values


def _judged(known: Known, one: Given) -> Job | Answer:
    try:
        return trust.admit(known, one) or {"status": "ignored"}
    except Rejected as refusal:
        return refusal


async def _record(
    tx: Transaction, told: Mapping[int, Job], meter: _Meter, tries: int = MOST_TRIES
) -> dict[int, Answer]:
    """Write what is told of jobs; what somebody else wrote in between is looked at again."""
    present = await jobs.get(tx, {job.key for job in told.values()})
    room = await _Room.of(tx, told.values())
    rows = dict(present)
    answers = {at: _apply(job, rows, meter, room, now=tx.now) for at, job in told.items()}
    lost = await jobs.add(tx, {key: row for key, row in rows.items() if key not in present})
    await jobs.change(tx, {key: rows[key] for key, row in present.items() if rows[key] is not row})
    again = {at: job for at, job in told.items() if job.key in lost}
    for at, job in told.items():
        if at in again:
            meter.taken[job.caller] -= not isinstance(answers[at], Rejected)
        else:
            _follow_up(tx, job, answers[at])
    if again and tries > 1:
        return answers | await _record(tx, again, meter, tries - 1)
    busy = Rejected(
        503, "busy", "this job is being reported on elsewhere: send it again", headers={"Retry-After": "1"}
    )
    return answers | dict.fromkeys(again, busy)


def _apply(job: Job, rows: dict[str, Row], meter: _Meter, room: _Room, *, now: int) -> Answer:
    """Change a job's row in `rows` to what the report says, where it may."""
    present = rows.get(job.key)
    answer: Row = {"status": job.report.status}
    try:
        change = lifecycle.decide(present, job.report, now=now, dispatched_at=job.dispatched_at)
        room.check(job, new=present is None)
        meter.check(job, now)
    except lifecycle.Conflict as error:
        return Rejected(409, "conflict", str(error))
    except Rejected as refusal:
        return refusal
    if change is None:
        return answer | {"duplicate": True}
    values = room.fitting(job, change.values)
    if job.measured:
        times = {"queue_time": job.measured.queue_time, "execution_time": job.measured.execution_time}
        values = lifecycle.as_measured(values, **times)
    rows[job.key] = (present or job.row) | values | {"flags": job.row["flags"] | values["flags"]}
    return answer


def _follow_up(tx: Transaction, job: Job, answer: Answer) -> None:
    """Ask for what a change makes necessary."""
    row = job.row
    if isinstance(answer, Rejected) or "duplicate" in answer:
        return
    if row.get("dispatch_id") and row["pr_number"] is not None:
        tx.publish(row["upstream_repo"], row["pr_number"])
    if job.names:
        tx.enqueue("verify_commit", job.names[1])
    if job.confirm and job.report.status == "completed":
        key = f"{row['downstream_repo'].casefold()}/{row['run_id']}/{row['run_attempt']}"
        tx.enqueue("confirm", key, delay=CONFIRM_AFTER)
