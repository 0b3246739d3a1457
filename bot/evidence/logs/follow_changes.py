"""What logs do before each commit: keep private failures apart, and tell statistics why reported jobs failed.

From the moment GitHub says that a repository is private, signatures that contain its jobs are not shown; a
task then moves the jobs to counts of their own, and the rest is shown again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import sqlalchemy as sa

from bot.core.errors import GiveUp
from bot.evidence.logs import failed_jobs, rows
from bot.evidence.logs.failed_jobs import Reported
from bot.evidence.logs.tables import FIRST, PUBLIC, ci_signature, ci_verdict
from bot.ingest.tables import records
from bot.oot.statistics import daily_sums
from bot.oot.verdict.verdict import RED_CONCLUSIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.evidence.logs.failed_jobs import FailedJob
    from bot.evidence.logs.tables import SignatureTitle
    from bot.oot.results.tables import JobRow
    from bot.queue.tasks import Task

QUERIED = 1_000  # repositories named in one statement: an installation may bring very many
MOVED_AT_ONCE = 200  # jobs moved in one transaction
REPOSITORY, VERDICT, NAMED = records["repository"].c, ci_verdict.c, ci_signature.c
JOBS_MOST = 500  # of one run
RunKey = tuple[str, str, int]  # the backend in lower case, run and attempt


async def before_commit(tx: Transaction, changed: Changed) -> None:
    """Follow what changed of repositories and reports."""
    private = sorted({int(row["repository_id"]) for row in changed.get("repository", ()) if row["private"]})
    for start in range(0, len(private), QUERIED):
        public = await counted_in_public(tx, private[start : start + QUERIED])
        for identifier in sorted(public):
            tx.enqueue("private_logs", str(identifier))
    await follow_reports(tx, changed)


async def move_private_failures(context: Context, task: Task) -> None:
    """Move the failures of a private repository to counts of its own (key: its id)."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    while True:
        async with context.store.transaction() as tx:
            if not await is_private(tx, int(task.key)):
                return
            if not await move_batch(tx, int(task.key)):
                return


async def counted_in_public(tx: Transaction, repository_ids: Collection[int] | None = None) -> set[int]:
    """Return which repositories (None: those that are private now) still have jobs in public counts."""
    counted = sa.exists().where(
        FIRST, VERDICT.repository_id == REPOSITORY.repository_id, VERDICT.family == PUBLIC
    )
    query = sa.select(REPOSITORY.repository_id).where(counted)
    if repository_ids is None:
        query = query.where(REPOSITORY.private.is_not(sa.false()))
    else:
        query = query.where(REPOSITORY.repository_id.in_(sorted(repository_ids)))
    return set((await tx.run(query)).scalars())


async def is_private(tx: Transaction, repository_id: int) -> bool:
    """Whether a repository is private, or GitHub has not said that it is public."""
    query = sa.select(REPOSITORY.private).where(REPOSITORY.repository_id == repository_id)
    return (await tx.run(query)).scalar() is not False


async def move_batch(tx: Transaction, repository_id: int) -> bool:
    """Move some jobs of a private repository to counts of its own; return whether there were any."""
    mine = sa.and_(VERDICT.repository_id == repository_id, VERDICT.family == PUBLIC)
    jobs = (await tx.run(sa.select(VERDICT.job_id).where(mine).distinct().limit(MOVED_AT_ONCE))).scalars()
    if not jobs:
        return False
    these = sa.and_(mine, VERDICT.job_id.in_(jobs))
    query = sa.select(VERDICT.signature, VERDICT.day, sa.func.min(VERDICT.at)).where(
        these, FIRST, VERDICT.signature.is_not(None)
    )
    failures = (await tx.run(query.group_by(VERDICT.signature, VERDICT.day))).all()
    seen = {signature: at for signature, _, at in failures}
    titles = await _titles(tx, seen.keys())
    own = rows.family_of(repository_id, private=True)
    await tx.run(sa.update(ci_verdict).where(these).values(family=own))
    concerned = {(signature, whose, day) for signature, day, _ in failures for whose in (PUBLIC, own)}
    await rows.request_count(tx, concerned, titles, seen)
    await failed_jobs.request_publish_of_jobs(tx, repository_id, jobs)
    return True


async def _titles(tx: Transaction, signatures: Collection[str]) -> dict[str, SignatureTitle]:
    query = sa.select(NAMED.signature, NAMED.title, NAMED.rule, NAMED.kind).where(
        NAMED.signature.in_(sorted(signatures)), NAMED.family == PUBLIC
    )
    return {
        row.signature: {"title": row.title, "rule": row.rule, "kind": row.kind} for row in await tx.run(query)
    }


async def follow_reports(tx: Transaction, changed: Changed) -> None:
    """Before a commit, look up the failures that reports are about; their logs may have been read already."""
    ended = cast("Sequence[JobRow]", changed.get("oot_workflow_job", ()))
    runs = {
        (row["downstream_repo"].lower(), row["run_id"], row["run_attempt"])
        for row in ended
        if row.get("conclusion") in RED_CONCLUSIONS
    }
    await store_kinds(tx, runs)


async def update_kind_of_job(tx: Transaction, repository_id: int, job_id: int) -> None:
    """Look up the failures that the verdict on a job's log is about."""
    failure = await failed_jobs.failure_of_job(tx, repository_id, job_id)
    if failure:
        await store_kinds(tx, [(failure["repo"].lower(), failure["run_id"], failure["run_attempt"])])


async def store_kinds(tx: Transaction, runs: Iterable[RunKey]) -> None:
    """Store why reported jobs of some runs failed; leave runs without logs as they are."""
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
        await daily_sums.store_failure_kinds(
            tx,
            {
                key: _kind(logs, name, alone=len(jobs) == 1) if conclusion in RED_CONCLUSIONS else None
                for key, name, conclusion in jobs
            },
        )


def _kind(logs: Sequence[FailedJob], job: str, *, alone: bool) -> str | None:
    """Return the kind that the logs of a reported job agree on, or None."""
    named = [log["kind"] for log in logs if log["name"] == job]
    kinds = set(named or ([log["kind"] for log in logs] if alone else []))
    return next(iter(kinds)) if len(kinds) == 1 else None
