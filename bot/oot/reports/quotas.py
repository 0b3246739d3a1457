"""Quotas of a backend, so that none slows the others down: reads and writes of oot_rate.

Limited are reports, bytes and new commits in a span of time, and the jobs and failed tests of a dispatch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from bot.core.clock import JITTER
from bot.core.errors import Rejected
from bot.db.statements import Statement
from bot.oot.reports import verify_commit
from bot.oot.reports.tables import oot_rate
from bot.oot.results import jobs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from bot.db.transaction import Transaction
    from bot.oot.reports.authorization import ClaimedCommit, Job
    from bot.oot.results.tables import JobChange

MINUTE, HOUR = 60, 3600  # seconds
NEW_COMMITS = 60  # an hour and backend: each may cost some of the calls that GitHub allows us upstream
MOST_JOBS = 1_000  # of one dispatch, or of one backend on one commit where nobody dispatched
MOST_TESTS = (
    4_000_000  # characters of failed tests of these: the page of the pull request or commit reads them
)
WIDENED = 2  # times as long failed tests are stored at most: PostgreSQL puts spaces between them
LONGEST_WINDOW = 3600  # seconds
LOCK = 1  # namespace of these advisory locks
RATE = oot_rate.c
ACCEPTED_LATELY = Statement(
    sa.select(
        RATE.caller,
        sa.func.sum(RATE.accepted).label("count"),
        sa.func.min(RATE.second).label("oldest"),
    )
    .where(
        sa.or_(
            RATE.caller.in_(sa.bindparam("minutely", expanding=True))
            & (RATE.second > sa.bindparam("minute_ago")),
            RATE.caller.in_(sa.bindparam("hourly", expanding=True))
            & (RATE.second > sa.bindparam("hour_ago")),
        ),
        RATE.second <= sa.bindparam("latest"),
    )
    .group_by(RATE.caller)
)


@dataclass(kw_only=True)
class RateQuota:
    """Reports and new commits that callers had accepted lately, and what is accepted now."""

    spent: Mapping[str, tuple[int, int]]  # count, second of the oldest
    named: set[tuple[str, str]]  # commits, as Job.unasked, that were reported on before: they count once
    bytes_of: Mapping[str, int]  # by caller, of failed tests: in the last hour and in these reports
    taken: Counter[str] = field(default_factory=Counter)  # here and now

    @classmethod
    async def of(cls, tx: Transaction, new: Collection[Job]) -> RateQuota:
        """Return what these jobs' callers have used up; locked against others until the transaction ends."""
        reports = {share.key for job in new if (share := _of_reports(job))}
        tests = [(job.caller, share) for job in new if (share := _of_bytes(job))]
        hourly = {share.key for job in new if (share := _of_commits(job))} | {share.key for _, share in tests}
        await _lock(tx, reports | hourly)
        spent = await accepted_lately(tx, minutely=reports, hourly=hourly)
        bytes_of = Counter({caller: spent.get(share.key, (0, 0))[0] for caller, share in tests})
        for caller, share in tests:
            bytes_of[caller] += share.amount
        named = set(await verify_commit.counts(tx, _commits(new)))
        return cls(spent=spent, named=named, bytes_of=bytes_of)

    @property
    def accepted(self) -> dict[str, int]:
        """How much of each share was used up, and not given back."""
        return {key: count for key, count in self.taken.items() if count > 0}

    def check(self, job: Job, now: int) -> None:
        """Raise Rejected 429 when the caller has used up a share."""
        shares = [_of_reports(job), None if job.names in self.named else _of_commits(job), _of_bytes(job)]
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

    def tests_certainly_fit(self, job: Job, now: int) -> bool:
        """Whether what a job's dispatch holds need not be added up: all its caller has sent since then fits."""
        # what is later than now was noted by a clock that was ahead
        oldest, latest = now - (HOUR - MINUTE) * 1000, now + JITTER
        if job.dispatched_at is None or not oldest <= job.dispatched_at <= latest:
            return False
        return job.caller in self.bytes_of and self.bytes_of[job.caller] * WIDENED <= MOST_TESTS

    def give_back(self, job: Job) -> None:
        """Stop counting a report that is judged again; its commit and its bytes stay counted."""
        self.taken[job.caller] -= 1


@dataclass(frozen=True, kw_only=True)
class _Share:
    """How much of something is accepted in a span of time."""

    key: str  # what it is counted under
    most: int
    window: int  # seconds
    rule: str  # for the message when it is used up
    amount: int = 1  # that this report needs


def _of_reports(job: Job) -> _Share | None:
    if job.limit is None:
        return None
    rule = f"{job.caller} may send {job.limit} reports a minute"
    return _Share(key=job.caller, most=job.limit, window=MINUTE, rule=rule)


def _of_commits(job: Job) -> _Share | None:
    if job.names is None:
        return None
    backend = job.names.backend
    rule = f"{backend} may report on {NEW_COMMITS} commits an hour that were not dispatched to it"
    return _Share(key=f"commits of {backend}", most=NEW_COMMITS, window=HOUR, rule=rule)


def _of_bytes(job: Job) -> _Share | None:
    """Return the share of the database: failed tests are what makes a report large."""
    if job.byte_limit is None or not job.report.job["failed_tests_json"]:
        return None
    rule = f"{job.caller} may report {job.byte_limit / 1_000_000:,.0f} MB of failed tests an hour"
    size = len(msgspec.json.encode(job.report.job["failed_tests_json"]))
    return _Share(key=f"bytes of {job.caller}", most=job.byte_limit, window=HOUR, rule=rule, amount=size)


@dataclass(kw_only=True)
class SizeQuota:
    """Jobs and failed tests stored for a dispatch, or for (backend, commit) where nobody dispatched."""

    jobs: Counter[str | tuple[str, str]] = field(default_factory=Counter)
    tests: Counter[str | tuple[str, str]] = field(default_factory=Counter)  # characters

    @classmethod
    async def of(
        cls, tx: Transaction, reported: Collection[Job], rates: RateQuota, *, known: Collection[str]
    ) -> SizeQuota:
        """Return what is stored where these reports belong, as far as it could be too much.

        Of jobs with a `known` key there will not be more.
        """
        new = [job for job in reported if job.key not in known]
        failing = [
            job
            for job in reported
            if job.report.job["failed_tests_json"] and not rates.tests_certainly_fit(job, tx.now)
        ]
        sizes = cls()
        sizes.jobs.update(await jobs.counts(tx, _dispatches(new)))
        sizes.tests.update(await jobs.lengths_of_tests(tx, _dispatches(failing)))
        sizes.jobs.update(await verify_commit.counts(tx, _commits(new)))
        sizes.tests.update(await verify_commit.lengths_of_tests(tx, _commits(failing)))
        return sizes

    def check(self, job: Job) -> None:
        """Raise Rejected 413 when a new job would be one more than there may be."""
        place = _place(job)
        if place is not None and self.jobs[place] >= MOST_JOBS:
            what = "commit" if job.unasked else "dispatch"
            detail = f"this {what} has {MOST_JOBS} jobs: report on fewer, or on all of them as one"
            raise Rejected(413, "too_many_jobs", detail)

    def enter(self, job: Job) -> None:
        """Count a new job that is taken: one refused for another reason has no sizes."""
        if (place := _place(job)) is not None:
            self.jobs[place] += 1

    def fitting(self, job: Job, change: JobChange) -> JobChange:
        """Return a change without failed tests that do not fit; their number stays."""
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


def _place(job: Job) -> str | ClaimedCommit | None:
    """Return what a job is counted under; None for relayed jobs of a pull request: the relay limits those itself."""
    return job.row["dispatch_id"] or job.unasked


def _dispatches(new: Iterable[Job]) -> set[str]:
    return {key for job in new if (key := job.row["dispatch_id"])}


def _commits(new: Iterable[Job]) -> set[verify_commit.Commit]:
    return {job.unasked for job in new if job.unasked}


async def _lock(tx: Transaction, callers: Collection[str]) -> None:
    """Let no other process accept reports of these callers until the transaction ends: both could exceed a limit."""
    if callers and not tx.sqlite:  # which has one writer at a time
        names = sa.func.unnest(sa.literal(sorted(callers), ARRAY(sa.Text))).column_valued("name")
        digest = sa.func.hashtext(names).label("digest")
        ordered = sa.select(digest).distinct().order_by(digest).subquery()
        await tx.run(sa.select(sa.func.pg_advisory_xact_lock(LOCK, ordered.c.digest)))


async def accepted_lately(
    tx: Transaction, *, minutely: Collection[str] = (), hourly: Collection[str] = ()
) -> dict[str, tuple[int, int]]:
    """Return how much of each share was accepted within its minute or hour, and the second of the oldest."""
    if not minutely and not hourly:
        return {}
    now = tx.now // 1000
    spans = {"minutely": sorted(minutely), "minute_ago": now - MINUTE}
    spans |= {"hourly": sorted(hourly), "hour_ago": now - HOUR}
    # later ones a wrong clock noted
    rows = await tx.rows(ACCEPTED_LATELY, spans | {"latest": (tx.now + JITTER) // 1000})
    return {row["caller"]: (int(row["count"]), int(row["oldest"])) for row in rows}


async def record_accepted(tx: Transaction, accepted: Mapping[str, int]) -> None:
    """Record how many reports were accepted, by caller."""
    if not accepted:
        return
    second = tx.now // 1000
    rows = [
        {"caller": caller, "second": second, "accepted": count} for caller, count in sorted(accepted.items())
    ]
    await tx.upsert(oot_rate, rows, added=("accepted",))


async def forget(tx: Transaction) -> None:
    """Delete counts older than any window."""
    first, last = tx.now // 1000 - LONGEST_WINDOW, (tx.now + JITTER) // 1000
    await tx.run(sa.delete(oot_rate).where(~oot_rate.c.second.between(first, last)))
