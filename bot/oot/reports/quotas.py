"""Quotas of a backend, so that none slows the others down.

Limited are reports, bytes and new commits in a span of time, and the jobs and failed tests of a dispatch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from bot.core.clock import JITTER
from bot.core.errors import Rejected
from bot.oot.reports.store import accepted, unverified
from bot.oot.results.store import jobs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from bot.db.transaction import Transaction
    from bot.oot.reports.authorization import ClaimedCommit, Job
    from bot.oot.results.tables import JobChange

MINUTE, HOUR = 60, 3600  # seconds
NEW_COMMITS = 60  # an hour and backend: each may cost some of the calls that GitHub allows us upstream
MOST_JOBS = 1_000  # of one dispatch, or of one backend on one commit of a run that was not dispatched
MOST_TESTS = (
    4_000_000  # characters of failed tests of these: the page of the pull request or commit reads them
)
WIDENED = 2  # times as long failed tests are stored at most: PostgreSQL puts spaces between them


@dataclass(kw_only=True)
class RateQuota:
    """Reports and new commits that callers had accepted lately, and what is accepted now."""

    spent: Mapping[str, tuple[int, int]]  # count, second of the oldest
    named: set[tuple[str, str]]  # commits, as Job.unasked, that were reported on before: they count once
    bytes_of: Mapping[str, int]  # by caller, of failed tests: in the last hour and in these reports
    taken: Counter[str] = field(default_factory=Counter)  # here and now

    @classmethod
    async def read(cls, tx: Transaction, new: Collection[Job]) -> RateQuota:
        """Return what these jobs' callers have used up; locked against others until the transaction ends."""
        reports = {share.key for job in new if (share := _share_of_reports(job))}
        tests = [(job.caller, share) for job in new if (share := _share_of_bytes(job))]
        hourly = {share.key for job in new if (share := _share_of_commits(job))} | {
            share.key for _, share in tests
        }
        await accepted.lock(tx, reports | hourly)
        spent = await accepted.read_lately(tx, minutely=reports, hourly=hourly)
        bytes_of = Counter({caller: spent.get(share.key, (0, 0))[0] for caller, share in tests})
        for caller, share in tests:
            bytes_of[caller] += share.amount
        named = set(await unverified.count_jobs(tx, _commits(new)))
        return cls(spent=spent, named=named, bytes_of=bytes_of)

    @property
    def accepted(self) -> dict[str, int]:
        """How much of each share was used up, and not given back."""
        return {key: count for key, count in self.taken.items() if count > 0}

    def check(self, job: Job, now: int) -> None:
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


def _share_of_reports(job: Job) -> _Share | None:
    if job.limit is None:
        return None
    rule = f"{job.caller} may send {job.limit} reports a minute"
    return _Share(key=job.caller, most=job.limit, window=MINUTE, rule=rule)


def _share_of_commits(job: Job) -> _Share | None:
    if job.names is None:
        return None
    backend = job.names.backend
    rule = f"{backend} may report on {NEW_COMMITS} commits an hour that were not dispatched to it"
    return _Share(key=f"commits of {backend}", most=NEW_COMMITS, window=HOUR, rule=rule)


def _share_of_bytes(job: Job) -> _Share | None:
    """Return the share of the database: failed tests are what makes a report large."""
    if job.byte_limit is None or not job.report.job["failed_tests_json"]:
        return None
    rule = f"{job.caller} may report {job.byte_limit / 1_000_000:,.0f} MB of failed tests an hour"
    size = len(msgspec.json.encode(job.report.job["failed_tests_json"]))
    return _Share(key=f"bytes of {job.caller}", most=job.byte_limit, window=HOUR, rule=rule, amount=size)


@dataclass(kw_only=True)
class SizeQuota:
    """Jobs and failed tests stored for a dispatch, or for (backend, commit) of a run that was not dispatched."""

    jobs: Counter[str | tuple[str, str]] = field(default_factory=Counter)
    tests: Counter[str | tuple[str, str]] = field(default_factory=Counter)  # characters

    @classmethod
    async def read(
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
        sizes.jobs.update(await unverified.count_jobs(tx, _commits(new)))
        sizes.tests.update(await unverified.measure_tests(tx, _commits(failing)))
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


def _commits(new: Iterable[Job]) -> set[unverified.Commit]:
    return {job.unasked for job in new if job.unasked}
