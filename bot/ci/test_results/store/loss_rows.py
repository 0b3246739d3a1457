"""Rows of lost tests: what a complete run has less of than the trusted one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.collect.states import State
from bot.ci.collect.tables import ci_fetch
from bot.ci.test_results.job_tables import BASELINE, TestJobRow
from bot.ci.test_results.losses import Counts
from bot.ci.test_results.store import rows
from bot.ci.test_results.store.rows import JOB
from bot.ci.test_results.tables import LossRow, Place, test_class, test_loss, test_summary
from bot.db.rows import Query, select
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction

LOSS, CLASS, SUMMARY, FETCH = test_loss.c, test_class.c, test_summary.c, ci_fetch.c
RECORD, RUN = records["workflow_job"].c, records["workflow_run"].c


class ListedLoss(LossRow, Place):
    """A loss with its suite; both texts are empty where the jobs as a whole lost tests."""


async def conclusions(
    tx: Transaction, repository_id: int, jobs: Collection[TestJobRow]
) -> dict[int, str | None]:
    """Return how jobs ended by GitHub's word, by their generation: a job that is not known as its run did."""
    ids = sorted({job["job_id"] for job in jobs if job["job_id"] > 0})
    runs = sorted({job["run_id"] for job in jobs})
    own = sa.select(RECORD.id, RECORD.conclusion).where(
        RECORD.repository_id == repository_id, RECORD.id.in_(ids)
    )
    by_job = {row.id: row.conclusion for row in await tx.run(own)}
    whole = sa.select(RUN.id, RUN.run_attempt, RUN.conclusion).where(
        RUN.repository_id == repository_id, RUN.id.in_(runs)
    )
    by_run = {(row.id, row.run_attempt): row.conclusion for row in await tx.run(whole)}
    return {
        job["generation"]: by_job.get(job["job_id"])
        if job["job_id"] > 0
        else by_run.get((job["run_id"], job["run_attempt"]))
        for job in jobs
    }


async def is_awaited(tx: Transaction, repository_id: int, run_id: int) -> bool:
    """Whether artifacts of a run are still to be fetched."""
    query = sa.select(FETCH.object_id).where(
        FETCH.repository_id == repository_id,
        FETCH.run_id == run_id,
        FETCH.kind == "artifact",
        FETCH.state == State.WANTED,
    )
    return (await tx.run(query.limit(1))).scalar() is not None


async def runs_before(
    tx: Transaction, repository_id: int, family: str, *, run_id: int, since: int, until: int, limit: int
) -> list[int]:
    """Return the newest trusted runs of a family of jobs before another run, the newest first."""
    query = sa.select(JOB.run_id).where(
        BASELINE,
        JOB.repository_id == repository_id,
        JOB.family == family,
        JOB.at >= since,
        JOB.at < until,
        JOB.run_id != run_id,
    )
    newest = query.group_by(JOB.run_id).order_by(sa.func.max(JOB.at).desc(), JOB.run_id.desc())
    return list((await tx.run(newest.limit(limit))).scalars())


async def jobs_of(tx: Transaction, repository_id: int, run_id: int, family: str) -> list[TestJobRow]:
    """Return a run's jobs of a family."""
    query = rows.JOBS.where(JOB.repository_id == repository_id, JOB.run_id == run_id, JOB.family == family)
    return await tx.fetch(query.order_by(JOB.run_attempt, JOB.job_id))


async def counts_by_suite(tx: Transaction, generations: Sequence[int]) -> dict[int, Counts]:
    """Return how many tests of each suite some jobs reported."""
    query = (
        sa.select(SUMMARY.class_id, sa.func.sum(SUMMARY.tests), sa.func.sum(SUMMARY.skipped))
        .where(SUMMARY.generation.in_(generations))
        .group_by(SUMMARY.class_id)
    )
    return {class_id: Counts(int(tests), int(skipped)) for class_id, tests, skipped in await tx.run(query)}


async def replace_losses(tx: Transaction, repository_id: int, run_id: int, losses: Sequence[LossRow]) -> None:
    """Store what a run lost in place of what was known."""
    mine = sa.and_(LOSS.repository_id == repository_id, LOSS.run_id == run_id)
    await tx.run(sa.delete(test_loss).where(mine))
    if losses:
        await tx.run(sa.insert(test_loss), [{**row} for row in losses])
    tx.note_changed("test_loss", [{"repository_id": repository_id, "run_id": run_id}])


async def newest_losses(
    tx: Transaction, repository_ids: Collection[int], *, since: int, skipped: int, limit: int
) -> list[ListedLoss]:
    """Return what a repository's runs lost in a window, the newest run and the greatest losses first."""
    query = _listed().where(LOSS.repository_id.in_(sorted(repository_ids)), LOSS.at >= since)
    return await tx.fetch(_ordered(query).offset(skipped).limit(limit))


async def losses_on_commit(tx: Transaction, sha: str, *, limit: int) -> list[ListedLoss]:
    """Return what runs on a commit lost, upstream's own and backends'; what may be shown, the caller decides."""
    return await tx.fetch(_ordered(_listed().where(LOSS.head_sha == sha)).limit(limit))


def _listed() -> Query[ListedLoss]:
    texts = {name: sa.func.coalesce(CLASS[name], "") for name in ("file", "suite")}
    joined = test_loss.outerjoin(test_class, CLASS.id == LOSS.class_id)
    return select(ListedLoss, test_loss, **texts).select_from(joined)


def _ordered(query: Query[ListedLoss]) -> Query[ListedLoss]:
    return query.order_by(
        LOSS.at.desc(), LOSS.run_id, (LOSS.tests - LOSS.tests_before), LOSS.family, LOSS.class_id, LOSS.kind
    )
