"""A backend by the relay's criteria for L3, and the failures that upstream's own jobs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.test_results.parse.identity import DEVICES, without_device
from bot.oot.pages import relay_criteria_rows as rows
from bot.oot.statistics.days import DAY
from bot.oot.statistics.relay_criteria import Measures, measure

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.pages.relay_criteria_rows import FailedJob

Name = tuple[str, str]  # suite and name of a test, the same on every device


async def measure_backend(tx: Transaction, entry: Entry, *, days: int, hidden: Collection[str]) -> Measures:
    """Measure a backend's jobs on pull requests of the last days."""
    since = tx.now - days * DAY
    jobs = await rows.measured_jobs(tx, entry.repo, since=since, hidden=hidden)
    return measure(jobs, await read_shared(tx, entry, since=since, hidden=hidden) if jobs else ())


async def read_shared(
    tx: Transaction, entry: Entry, *, since: int, hidden: Collection[str]
) -> frozenset[str]:
    """Return the keys of failed jobs all of whose failed tests also failed in upstream's own jobs on that commit.

    A job that named fewer tests than failed, or none, is not among them: that it is upstream's fault has to be seen.
    """
    failed = await rows.failed_jobs(tx, entry.repo, since=since, hidden=hidden)
    upstream = await rows.failed_upstream(tx, {sha for job in failed if (sha := job["head_sha"])})
    devices = DEVICES | {word.lower() for word in (entry.device, *entry.aka) if word}
    known = {sha: {_name(suite, name, devices) for suite, name in tests} for sha, tests in upstream.items()}
    return frozenset(
        job["job_key"]
        for job in failed
        if (tests := _tests(job, devices)) and tests <= known.get(job["head_sha"] or "", set())
    )


def _tests(job: FailedJob, devices: frozenset[str]) -> set[Name]:
    """Return the tests that failed in a job; none where it did not name all."""
    named = job["failed_tests_json"] or []
    if len(named) < (job["failed_tests"] or 0):
        return set()
    return {_name(str(test.get("classname") or ""), str(test["name"]), devices) for test in named}


def _name(suite: str, name: str, devices: frozenset[str]) -> Name:
    """Return a test as it is compared: by the last word of its suite, as reports write the module before it or not."""
    return without_device(suite.rpartition(".")[2], devices), without_device(name, devices)
