"""What sinks may have copies of: masked logs, and the verdicts on them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.exports import (
    KEYS_PER_QUERY,
    TEXT_TYPE,
    Addition,
    Export,
    Shape,
    StoredItem,
    StoredObject,
    column_types,
    copy_of,
    json_line,
    object_key,
    read_rows,
    repo_key,
)
from bot.db.rows import select
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.remote_blobs import BlobMissing
from bot.evidence.logs.parse.stored_log import StoredLog
from bot.evidence.logs.tables import VerdictRow, ci_log, ci_verdict
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bot.context import Context
    from bot.db.exports import ExportedRow, RowKey, TableCopy
    from bot.db.transaction import Transaction

LOGS_AT_ONCE = 4  # logs in memory
CLASSIFICATION = "torchci_classification"  # upstream's name for why a job failed


async def load_logs(context: Context, rows: Mapping[RowKey, ExportedRow]) -> dict[RowKey, ExportedRow]:
    """Add the stored logs, which are masked; None for one that is no longer kept."""
    return {key: {**row, "content": await _read_blob(context, row["blob"])} for key, row in rows.items()}


async def _read_blob(context: Context, blob: str | None) -> bytes | None:
    if blob is None:
        return None
    try:
        return await context.resource(BLOBS).get(blob)
    except BlobMissing:
        return None
    finally:
        await asyncio.sleep(0)


def copy_log(_export: Export, row: ExportedRow) -> list[StoredObject]:
    """Copy a log as an object of plain text, or nothing once it is no longer kept."""
    content: bytes | None = row["content"]
    if content is None:
        return []

    def blocks() -> Iterator[bytes]:
        yield from StoredLog(lambda start, length: content[start : start + length], len(content))

    key = "/".join(("log", repo_key(row["repo"]), object_key(row["job_id"])))
    conclusion = {"conclusion": row["conclusion"] or ""}
    return [StoredObject(key=key, content=blocks, content_type=TEXT_TYPE, metadata=conclusion)]


def copy_verdicts(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Copy the verdicts on a job as an object, one a line, the one that counts first."""
    key = "/".join((export.name, repo_key(row["repo"]), object_key(row["job_id"])))
    return [StoredObject(key=key, content=lambda: map(json_line, row["verdicts"]))]


def copy_log_row(export: Export) -> TableCopy:
    """Copy what is known of logs, without their text."""
    return copy_of(export, column_types(ci_log))


def copy_verdict_rows(export: Export) -> TableCopy:
    """Copy the verdicts on jobs."""
    columns = column_types(ci_verdict, without=("current", "excerpt", "excerpt_from"))

    def rows(row: ExportedRow) -> Iterator[Mapping[str, Any]]:
        return ({**verdict, "repo": row["repo"]} for verdict in row["verdicts"])

    return copy_of(export, columns, order=("ruleset", "rank"), rows=rows, several=True)


def classify_item(_export: Export, row: ExportedRow) -> list[StoredItem]:
    """Return the attribute of a job's item that says why it failed."""
    return [
        StoredItem(
            table="workflow-job",
            key=f"{row['repo']}/{row['job_id']}",
            attributes={CLASSIFICATION: describe_verdict(row)},
            version="_classification_version",
        )
    ]


async def classify_jobs(tx: Transaction, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Return the column that says why jobs failed, for the jobs where that is known."""
    known = await verdicts_of_keys(tx, keys)
    return {key: {CLASSIFICATION: describe_verdict(row)} for key, row in known.items()}


def describe_verdict(row: ExportedRow) -> dict[str, Any]:
    """Describe the verdict that counts for a job, under upstream's names."""
    first: VerdictRow = row["verdicts"][0]
    return {
        "rule": first["rule"] or "",
        "line": first["line"] or "",
        "line_num": first["line_num"] or 0,
        "captures": first["captures"],
        "context": first["context"],
        "job_id": row["job_id"],
    }


def _verdict_shape(make: str) -> Shape:
    read = "bot.evidence.logs.exports:read_verdicts"
    return Shape(make=f"bot.evidence.logs.exports:{make}", read=read, most=500)


ADDITIONS = (
    Addition(
        export="workflow_job",
        layouts=frozenset({"clickhouse.upstream"}),
        table=ci_verdict,
        key=("repository_id", "job_id"),
        read="bot.evidence.logs.exports:classify_jobs",
    ),
)
EXPORTS = (
    Export(
        name="logs",
        table=ci_log,
        day="fetched_at",
        shapes={
            "upstream": Shape(
                make="bot.evidence.logs.exports:copy_log",
                read="bot.evidence.logs.exports:read_logs",
                load="bot.evidence.logs.exports:load_logs",
                most=LOGS_AT_ONCE,
            ),
            "clickhouse.ootbot": Shape(make="bot.evidence.logs.exports:copy_log_row"),
        },
    ),
    Export(
        name="verdicts",
        table=ci_verdict,
        key=("repository_id", "job_id"),
        day="at",
        condition=ci_verdict.c.current,
        shapes={
            "upstream": _verdict_shape("copy_verdicts"),
            "clickhouse.ootbot": _verdict_shape("copy_verdict_rows"),
            "dynamodb": _verdict_shape("classify_item"),
        },
    ),
)


JOB, VERDICT = records["workflow_job"].c, ci_verdict.c


async def read_logs(tx: Transaction, export: Export, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Read what is known of logs, with the conclusions of their jobs."""
    rows = await read_rows(tx, export, keys)
    conclusions: dict[RowKey, str | None] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        some = tx.among((JOB.repository_id, JOB.id), keys[start : start + KEYS_PER_QUERY])
        query = sa.select(JOB.repository_id, JOB.id, JOB.conclusion).where(some)
        conclusions |= {(row[0], row[1]): row[2] for row in await tx.run(query)}
    return {key: {**row, "conclusion": conclusions.get(key)} for key, row in rows.items()}


async def read_verdicts(
    tx: Transaction, _export: Export, keys: Sequence[RowKey]
) -> dict[RowKey, ExportedRow]:
    """Return the current verdicts on jobs, by rank."""
    return await verdicts_of_keys(tx, keys)


async def verdicts_of_keys(tx: Transaction, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Return the current verdicts on jobs (repository, job), by rank."""
    verdicts_by_job: dict[RowKey, list[VerdictRow]] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        some = tx.among((VERDICT.repository_id, VERDICT.job_id), keys[start : start + KEYS_PER_QUERY])
        query = select(VerdictRow, ci_verdict).where(some, VERDICT.current).order_by(VERDICT.rank)
        for row in await tx.fetch(query):
            verdicts_by_job.setdefault((row["repository_id"], row["job_id"]), []).append(row)
    return {
        key: {"repository_id": key[0], "job_id": key[1], "verdicts": verdicts}
        for key, verdicts in verdicts_by_job.items()
    }
