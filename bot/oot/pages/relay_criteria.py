"""A backend by the relay's criteria for L3, without the failures that upstream's own jobs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.oot.pages import relay_criteria_rows as rows
from bot.oot.statistics.days import DAY
from bot.oot.statistics.relay_criteria import Measures, measure
from bot.web.shared_failures import FailedJob, SharedFailuresSubject, find_shared_failures

if TYPE_CHECKING:
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.pages.relay_criteria_rows import FailedJobRow
    from bot.web.asked import Asked


async def measure_backend(asked: Asked, entry: Entry, *, days: int) -> Measures:
    """Measure a backend's jobs on pull requests of the last days."""
    since = asked.tx.now - days * DAY
    jobs = await rows.measured_jobs(asked.tx, entry.repo, since=since, hidden=asked.hidden.names)
    return measure(jobs, await read_shared(asked, entry, since=since) if jobs else ())


async def read_shared(asked: Asked, entry: Entry, *, since: int) -> frozenset[str]:
    """Return the keys of failed jobs all of whose failed tests also failed in upstream's own jobs on that commit.

    A job that named fewer tests than failed, or none, is not among them: that it is upstream's fault has to be seen.
    """
    failed = await rows.failed_jobs(asked.tx, entry.repo, since=since, hidden=asked.hidden.names)
    subject = SharedFailuresSubject(
        jobs=tuple(one for job in failed if (one := _failed(job)) is not None),
        devices=frozenset(word.lower() for word in (entry.device, *entry.aka) if word),
    )
    return await find_shared_failures(asked.context.features, asked.tx, subject)


def _failed(job: FailedJobRow) -> FailedJob | None:
    """Return a failed job with the tests that failed in it; None where it did not name all."""
    named = job["failed_tests_json"] or []
    if not named or job["head_sha"] is None or len(named) < (job["failed_tests"] or 0):
        return None
    tests = frozenset((str(test.get("classname") or ""), str(test["name"])) for test in named)
    return FailedJob(key=job["job_key"], head_sha=job["head_sha"], tests=tests)
