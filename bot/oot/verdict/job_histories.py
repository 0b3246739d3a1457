"""How failing jobs compare, by the failures in them: no job is called new where all its tests are known. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from bot.oot.verdict.failure import NEW, NEW_TEST, rank_of
from bot.oot.verdict.view import History
from bot.web.failures import JobKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.oot.verdict.failure import FailureList
    from bot.oot.verdict.view import Backend, Job
    from bot.web.failures import Standing

HISTORIES = {NEW: History.NEW, NEW_TEST: History.NEW, "": History.NO_BASELINE, "flaky": History.FLAKY}


def settle_histories(backends: Iterable[Backend], failures: FailureList) -> tuple[Backend, ...]:
    """Return backends whose failing jobs say what the list of failures says of what failed in them."""
    found: defaultdict[tuple[JobKey, str], list[Standing]] = defaultdict(list)
    for one in failures.all:
        for job in one.jobs:
            found[job.key, job.group].append(one.standing_on(job.key.repo))
    return tuple(
        replace(
            backend,
            jobs=tuple(
                _settle(job, found.get((_key(backend, job), job.workflow), ())) for job in backend.jobs
            ),
        )
        for backend in backends
    )


def _key(backend: Backend, job: Job) -> JobKey:
    return JobKey(backend.repo.lower(), job.run_id, job.run_attempt, job.name)


def _settle(job: Job, standings: Sequence[Standing]) -> Job:
    if not job.red or not standings:
        return job
    nearest = min(standings, key=rank_of)
    history = HISTORIES.get(nearest.word, History.KNOWN)
    if history is (job.history or History.NO_BASELINE):
        return job
    return replace(job, history=history, history_why=nearest.why, evidence_url=None, evidence_elsewhere=False)
