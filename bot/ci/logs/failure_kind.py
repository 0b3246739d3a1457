"""Why backends' reported jobs failed, for their statistics: the kind that the verdicts on their logs agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from bot.ci.logs.store import failed_jobs
from bot.ci.logs.store.failed_jobs import Reported
from bot.oot.statistics.store import failure_kinds
from bot.oot.verdict.verdict import RED_CONCLUSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.ci.logs.store.failed_jobs import FailedJob
    from bot.db.transaction import Changed, Transaction
    from bot.oot.results.tables import JobRow

JOBS_MOST = 500  # of one run
RunKey = tuple[str, str, int]  # the backend in lower case, run and attempt


async def follow_reports(tx: Transaction, changed: Changed) -> None:
    """Before a commit: look up the failures that these reports are about; their logs may have been read before."""
    ended = cast("Sequence[JobRow]", changed.get("oot_workflow_job", ()))
    runs = {
        (row["downstream_repo"].lower(), row["run_id"], row["run_attempt"])
        for row in ended
        if row.get("conclusion") in RED_CONCLUSIONS
    }
    await store_kinds(tx, runs)


async def update_kind_of_job(tx: Transaction, repository_id: int, job_id: int) -> None:
    """Look up the failures that the verdict on a job's log is about."""
    found = await failed_jobs.failure_of_job(tx, repository_id, job_id)
    if found:
        await store_kinds(tx, [(found["repo"].lower(), found["run_id"], found["run_attempt"])])


async def store_kinds(tx: Transaction, runs: Iterable[RunKey]) -> None:
    """Store why the jobs failed that backends reported of some runs; runs without logs are left as they are."""
    wanted = sorted(runs)
    if not wanted:
        return
    reported = Reported(frozenset(repo for repo, _, _ in wanted), tuple((run, at) for _, run, at in wanted))
    logged = await failed_jobs.runs_with_logs(tx, reported)
    for repo, run_id, attempt in wanted:
        if (run_id, attempt) not in logged:
            continue
        jobs = await failed_jobs.reported_jobs(tx, repo, run_id, attempt, limit=JOBS_MOST)
        if not jobs:
            continue
        logs = await failed_jobs.failures_of_runs(
            tx, Reported(frozenset({repo}), ((run_id, attempt),)), limit=JOBS_MOST
        )
        await failure_kinds.store(
            tx,
            {
                key: _kind(logs, name, alone=len(jobs) == 1) if conclusion in RED_CONCLUSIONS else None
                for key, name, conclusion in jobs
            },
        )


def _kind(logs: Sequence[FailedJob], job: str, *, alone: bool) -> str | None:
    """Return the kind that the logs of a reported job agree on, None where they do not or there is none."""
    named = [log["kind"] for log in logs if log["name"] == job]
    kinds = set(named or ([log["kind"] for log in logs] if alone else []))
    return next(iter(kinds)) if len(kinds) == 1 else None
