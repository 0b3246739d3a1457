"""Rows of logs and verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.logs.store import failure_counts
from bot.ci.logs.tables import PUBLIC, LogRow, VerdictRow, ci_log, ci_verdict
from bot.db.rows import select
from bot.ingest.rows import WorkflowJobRow, WorkflowRunRow
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.ci.logs.tables import SignatureTitle
    from bot.db.transaction import Transaction

DAY = 86_400_000  # milliseconds


def family_of(repository_id: int, *, private: bool) -> str:
    """Return whose failures are counted together: nothing of a private repository is in the public sums."""
    return f"private:{repository_id}" if private else PUBLIC


async def store_log(tx: Transaction, row: LogRow) -> None:
    """Store what is known of a log, in place of what was."""
    await tx.upsert(ci_log, [row], replaced=list(row))
    tx.note_changed("ci_log", [row])


async def store_first_error(
    tx: Transaction, repository_id: int, job_id: int, first_error: dict[str, Any] | None
) -> None:
    """Store the earliest line of a log that a rule for builds matches."""
    of_job = sa.and_(ci_log.c.repository_id == repository_id, ci_log.c.job_id == job_id)
    await tx.run(sa.update(ci_log).where(of_job).values(first_error=first_error))


async def find_log(tx: Transaction, repository_id: int, job_id: int) -> LogRow | None:
    """Return what is known of a job's log."""
    query = select(LogRow, ci_log)
    return await tx.fetch_first(
        query.where(ci_log.c.repository_id == repository_id, ci_log.c.job_id == job_id)
    )


async def lengths_of_logs(tx: Transaction, repository_id: int, job_ids: Iterable[int]) -> dict[int, int]:
    """Return how many lines the stored logs of some jobs have."""
    query = sa.select(ci_log.c.job_id, ci_log.c.lines).where(
        ci_log.c.repository_id == repository_id,
        ci_log.c.job_id.in_(sorted(job_ids)),
        ci_log.c.blob.is_not(None),
    )
    return {row.job_id: row.lines for row in await tx.run(query)}


async def verdicts_of_jobs(tx: Transaction, repository_id: int, job_ids: Iterable[int]) -> list[VerdictRow]:
    """Return the verdicts on some jobs of a repository, by job and rank."""
    query = select(VerdictRow, ci_verdict).where(
        ci_verdict.c.repository_id == repository_id,
        ci_verdict.c.job_id.in_(sorted(set(job_ids))),
        ci_verdict.c.current,
    )
    return await tx.fetch(query.order_by(ci_verdict.c.job_id, ci_verdict.c.rank))


async def move_verdicts(tx: Transaction, repository_id: int, job_id: int, ruleset: str) -> None:
    """Have the current verdicts on a job stand for another ruleset, by which they are the same."""
    of_job = sa.and_(ci_verdict.c.repository_id == repository_id, ci_verdict.c.job_id == job_id)
    former = sa.and_(of_job, ci_verdict.c.ruleset == ruleset, sa.not_(ci_verdict.c.current))
    await tx.run(sa.delete(ci_verdict).where(former))
    await tx.run(sa.update(ci_verdict).where(of_job, ci_verdict.c.current).values(ruleset=ruleset))
    tx.note_changed("ci_verdict", [{"repository_id": repository_id, "job_id": job_id}])


async def replace_verdicts(
    tx: Transaction,
    repository_id: int,
    job_id: int,
    found: Sequence[VerdictRow],
    titles: dict[str, SignatureTitle],
) -> None:
    """Store the verdicts of a ruleset on a job; those of other rulesets stay, no longer current.

    The days of the failures concerned are counted again.
    """
    of_job = sa.and_(ci_verdict.c.repository_id == repository_id, ci_verdict.c.job_id == job_id)
    before = await verdicts_of_jobs(tx, repository_id, [job_id])
    rulesets = {row["ruleset"] for row in found}
    await tx.run(sa.delete(ci_verdict).where(of_job, ci_verdict.c.ruleset.in_(sorted(rulesets))))
    await tx.run(sa.update(ci_verdict).where(of_job).values(current=False))
    if found:
        await tx.run(sa.insert(ci_verdict), [{**row} for row in found])
    tx.note_changed("ci_verdict", [{"repository_id": repository_id, "job_id": job_id}])
    concerned = {
        (row["signature"], row["family"], row["day"])
        for row in (*before, *found)
        if row["rank"] == 0 and row["signature"]
    }
    await failure_counts.request_count(tx, concerned, titles, dict.fromkeys(titles, found[0]["at"]))


async def find_job(tx: Transaction, repository_id: int, job_id: int) -> WorkflowJobRow | None:
    """Return GitHub's record of a job."""
    table = records["workflow_job"]
    query = select(WorkflowJobRow, table)
    return await tx.fetch_first(query.where(table.c.repository_id == repository_id, table.c.id == job_id))


async def find_run(tx: Transaction, repository_id: int, run_id: int, attempt: int) -> WorkflowRunRow | None:
    """Return GitHub's record of an attempt of a run."""
    table = records["workflow_run"]
    query = select(WorkflowRunRow, table).where(
        table.c.repository_id == repository_id, table.c.id == run_id, table.c.run_attempt == attempt
    )
    return await tx.fetch_first(query)


async def old_logs(tx: Transaction, *, before: int, limit: int) -> list[tuple[int, int]]:
    """Return logs fetched before a time that have verdicts of former rulesets."""
    former = sa.exists().where(
        ci_verdict.c.repository_id == ci_log.c.repository_id,
        ci_verdict.c.job_id == ci_log.c.job_id,
        sa.not_(ci_verdict.c.current),
    )
    query = sa.select(ci_log.c.repository_id, ci_log.c.job_id).where(ci_log.c.fetched_at < before, former)
    return [tuple(row) for row in (await tx.run(query.limit(limit))).all()]


async def delete_former(tx: Transaction, keys: Sequence[tuple[int, int]]) -> None:
    """Delete verdicts of former rulesets."""
    columns = (ci_verdict.c.repository_id, ci_verdict.c.job_id)
    await tx.run(sa.delete(ci_verdict).where(tx.among(columns, keys), sa.not_(ci_verdict.c.current)))


async def oldest_logs(tx: Transaction, *, before: int, limit: int) -> list[tuple[int, int]]:
    """Return logs fetched before a time."""
    query = sa.select(ci_log.c.repository_id, ci_log.c.job_id).where(ci_log.c.fetched_at < before)
    return [tuple(row) for row in (await tx.run(query.limit(limit))).all()]


async def delete_logs(tx: Transaction, keys: Sequence[tuple[int, int]]) -> None:
    """Delete what is known of logs, verdicts included."""
    for table in (ci_verdict, ci_log):
        await tx.run(sa.delete(table).where(tx.among((table.c.repository_id, table.c.job_id), keys)))
