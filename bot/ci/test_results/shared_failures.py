"""Failures of backends that upstream's own jobs share on the same commit, by the names of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.test_results.parse.identity import DEVICES, without_device
from bot.ci.test_results.store.judging_rows import failed_upstream

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.web.shared_failures import FailedJob, SharedFailuresSubject

Name = tuple[str, str]  # suite and name of a test, the same on every device


async def find_shared(tx: Transaction, subject: SharedFailuresSubject) -> frozenset[str]:
    """Return the keys of jobs all of whose failed tests also failed in upstream's own jobs on that commit."""
    upstream = await failed_upstream(tx, {job.head_sha for job in subject.jobs})
    devices = DEVICES | subject.devices
    known = {sha: {_name(suite, name, devices) for suite, name in tests} for sha, tests in upstream.items()}
    return frozenset(
        job.key
        for job in subject.jobs
        if job.tests and _names(job, devices) <= known.get(job.head_sha, set())
    )


def _names(job: FailedJob, devices: frozenset[str]) -> set[Name]:
    return {_name(suite, name, devices) for suite, name in job.tests}


def _name(suite: str, name: str, devices: frozenset[str]) -> Name:
    """Return a test as it is compared: by the last word of its suite, as some reports write the module before it."""
    return without_device(suite.rpartition(".")[2], devices), without_device(name, devices)
