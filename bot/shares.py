"""How much may one backend report? Reports and new commits in a time, jobs and failed tests of a dispatch.

No backend's reports may slow the others down.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from bot.errors import Rejected
from bot.store import commits, jobs, report_rates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from bot.store import Transaction
    from bot.trust import Job, Named

Row = dict[str, Any]
MINUTE, HOUR = 60, 3600  # seconds
NEW_COMMITS = 60  # an hour and backend: each may cost some of the calls that GitHub allows us upstream
MOST_JOBS = 1_000  # of one dispatch, or of one backend on one commit where nobody dispatched
MOST_TESTS = 4_000_000  # characters of failed tests of these: a look at the pull request or commit reads them


@dataclass(kw_only=True)
class Meter:
    """What callers have used up of their shares."""

    spent: Mapping[str, tuple[int, int]]  # count, second of the oldest
    named: set[tuple[str, str]]  # commits, as Job.names, that were reported on before: they count once
    taken: Counter[str] = field(default_factory=Counter)  # here and now

    @classmethod
    async def of(cls, tx: Transaction, told: Collection[Job]) -> Meter:
        """Return what these jobs' callers have used up; nobody else takes of it until the transaction ends."""
        reports = {share.key for job in told if (share := _of_reports(job))}
        unasked = {share.key for job in told if (share := _of_commits(job))}
        await report_rates.take_turns(tx, reports | unasked)
        spent = await report_rates.accepted_lately(tx, reports, window=MINUTE)
        spent |= await report_rates.accepted_lately(tx, unasked, window=HOUR)
        return cls(spent=spent, named=set(await commits.counts(tx, _commits(told))))

    @property
    def accepted(self) -> dict[str, int]:
        """How much of each share was taken, and not given back."""
        return {key: count for key, count in self.taken.items() if count > 0}

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

    def give_back(self, job: Job) -> None:
        """Count a report no longer: it is judged again, and its commit stays named."""
        self.taken[job.caller] -= 1


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
    backend = job.names.backend
    rule = f"{backend} may report on {NEW_COMMITS} commits an hour that it was not told of"
    return _Share(key=f"commits of {backend}", most=NEW_COMMITS, window=HOUR, rule=rule)


@dataclass(kw_only=True)
class Room:
    """What there is already where reports belong: one backend's words shall not be a load for all others.

    They belong to their dispatch, or to (backend, commit) where nobody dispatched them.
    """

    jobs: Counter[Any] = field(default_factory=Counter)
    tests: Counter[Any] = field(default_factory=Counter)  # characters

    @classmethod
    async def of(cls, tx: Transaction, told: Collection[Job]) -> Room:
        """Look at what some reports belong to."""
        failing = [job for job in told if job.report.failed_tests]
        room = cls()
        room.jobs.update(await jobs.counts(tx, _dispatches(told)))
        room.jobs.update(await commits.counts(tx, _commits(told)))
        room.tests.update(await jobs.lengths_of_tests(tx, _dispatches(failing)))
        room.tests.update(await commits.lengths_of_tests(tx, _commits(failing)))
        return room

    def check(self, job: Job) -> None:
        """Raise Rejected 413 when a new job would be one more than there may be."""
        place = _place(job)
        if place is not None and self.jobs[place] >= MOST_JOBS:
            what = "commit" if job.names else "dispatch"
            detail = f"this {what} has {MOST_JOBS} jobs: report on fewer, or on all of them as one"
            raise Rejected(413, "too_many_jobs", detail)

    def enter(self, job: Job) -> None:
        """Count a new job that is taken: one refused for another reason has no room."""
        if (place := _place(job)) is not None:
            self.jobs[place] += 1

    def fitting(self, job: Job, values: Row) -> Row:
        """Return a job's columns without failed tests for which there is no room; how many there are stays."""
        tests, place = values.get("failed_tests_json"), _place(job)
        if not tests or not place:
            return values
        size = len(msgspec.json.encode(tests))
        if self.tests[place] + size > MOST_TESTS:
            dropped = values["flags"].get("failed_tests_dropped", 0) + len(tests)
            kept = {name: value for name, value in values.items() if name != "failed_tests_json"}
            return kept | {"flags": values["flags"] | {"failed_tests_dropped": dropped}}
        self.tests[place] += size
        return values


def _place(job: Job) -> str | Named | None:
    """Return what a job belongs to; None for a relay's word on a pull request: it has no bounds but the relay's."""
    dispatch: str | None = job.row.get("dispatch_id")
    return dispatch or job.names


def _dispatches(told: Iterable[Job]) -> set[str]:
    return {key for job in told if (key := job.row.get("dispatch_id"))}


def _commits(told: Iterable[Job]) -> set[commits.Commit]:
    return {job.names for job in told if job.names}
