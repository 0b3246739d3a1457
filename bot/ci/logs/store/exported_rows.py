"""Rows of logs and verdicts as they leave for sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.logs.tables import VerdictRow, ci_verdict
from bot.db.exports import KEYS_PER_QUERY, read_rows
from bot.db.rows import select
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.exports import Export, Key, Row
    from bot.db.transaction import Transaction

JOB, V = records["workflow_job"].c, ci_verdict.c


async def read_logs(tx: Transaction, export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return what is known of logs, with the conclusions of their jobs."""
    rows = await read_rows(tx, export, keys)
    conclusions: dict[Key, str | None] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        some = tx.among((JOB.repository_id, JOB.id), keys[start : start + KEYS_PER_QUERY])
        query = sa.select(JOB.repository_id, JOB.id, JOB.conclusion).where(some)
        conclusions |= {(row[0], row[1]): row[2] for row in await tx.run(query)}
    return {key: {**row, "conclusion": conclusions.get(key)} for key, row in rows.items()}


async def read_verdicts(tx: Transaction, _export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return the current verdicts on jobs, by rank."""
    return await verdicts_of_keys(tx, keys)


async def verdicts_of_keys(tx: Transaction, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return the current verdicts on jobs (repository, job), by rank."""
    found: dict[Key, list[VerdictRow]] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        some = tx.among((V.repository_id, V.job_id), keys[start : start + KEYS_PER_QUERY])
        query = select(VerdictRow, ci_verdict).where(some, V.current).order_by(V.rank)
        for row in await tx.fetch(query):
            found.setdefault((row["repository_id"], row["job_id"]), []).append(row)
    return {
        key: {"repository_id": key[0], "job_id": key[1], "verdicts": verdicts}
        for key, verdicts in found.items()
    }
