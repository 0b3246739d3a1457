"""What sinks may have copies of: masked logs, and the verdicts on them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bot.ci.collect.blob_store import BlobMissing
from bot.ci.collect.blobs import BLOBS
from bot.ci.logs.parse.stored import StoredLog
from bot.ci.logs.store import exported_rows
from bot.ci.logs.tables import ci_log, ci_verdict
from bot.core.stored_items import StoredItem
from bot.core.stored_objects import TEXT, StoredObject, json_line, object_key, repo_key
from bot.db.exports import Addition, Export, Shape
from bot.db.table_copies import column_types, copy_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bot.ci.logs.tables import VerdictRow
    from bot.context import Context
    from bot.core.column_tables import TableCopy
    from bot.db.exports import Key, Row
    from bot.db.transaction import Transaction

TOGETHER = 4  # logs in memory
CLASSIFICATION = "torchci_classification"  # upstream's name for why a job failed


async def load_logs(context: Context, rows: Mapping[Key, Row]) -> dict[Key, Row]:
    """Add the stored logs, masked as they are; one that is no longer kept is None."""
    return {key: {**row, "content": await _read(context, row["blob"])} for key, row in rows.items()}


async def _read(context: Context, blob: str | None) -> bytes | None:
    if blob is None:
        return None
    try:
        return await context.resource(BLOBS).get(blob)
    except BlobMissing:
        return None
    finally:
        await asyncio.sleep(0)


def copy_log(_export: Export, row: Row) -> list[StoredObject]:
    """Return a log as an object of plain text; none where it is no longer kept."""
    content: bytes | None = row["content"]
    if content is None:
        return []

    def blocks() -> Iterator[bytes]:
        yield from StoredLog(lambda start, length: content[start : start + length], len(content))

    key = "/".join(("log", repo_key(row["repo"]), object_key(row["job_id"])))
    conclusion = {"conclusion": row["conclusion"] or ""}
    return [StoredObject(key=key, content=blocks, content_type=TEXT, metadata=conclusion)]


def copy_verdicts(export: Export, row: Row) -> list[StoredObject]:
    """Return the verdicts on a job as an object, a line each, the first the one that counts."""
    key = "/".join((export.name, repo_key(row["repo"]), object_key(row["job_id"])))
    return [StoredObject(key=key, content=lambda: map(json_line, row["verdicts"]))]


def copy_log_row(export: Export) -> TableCopy:
    """Return the copy of what is known of logs, without their texts."""
    return copy_of(export, column_types(ci_log))


def copy_verdict_rows(export: Export) -> TableCopy:
    """Return the copy of the verdicts on jobs."""
    columns = column_types(ci_verdict, without=("current", "excerpt", "excerpt_from"))

    def rows(row: Row) -> Iterator[Mapping[str, Any]]:
        return ({**one, "repo": row["repo"]} for one in row["verdicts"])

    return copy_of(export, columns, order=("ruleset", "rank"), rows=rows, several=True)


def classify_item(_export: Export, row: Row) -> list[StoredItem]:
    """Return the attribute of a job's item that says why it failed."""
    return [
        StoredItem(
            table="workflow-job",
            key=f"{row['repo']}/{row['job_id']}",
            attributes={CLASSIFICATION: describe_verdict(row)},
            version="_classification_version",
        )
    ]


async def classify_jobs(tx: Transaction, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return the column of jobs that says why they failed, of those of which that is known."""
    known = await exported_rows.verdicts_of_keys(tx, keys)
    return {key: {CLASSIFICATION: describe_verdict(row)} for key, row in known.items()}


def describe_verdict(row: Row) -> dict[str, Any]:
    """Return the verdict on a job that counts, under upstream's names."""
    first: VerdictRow = row["verdicts"][0]
    return {
        "rule": first["rule"] or "",
        "line": first["line"] or "",
        "line_num": first["line_num"] or 0,
        "captures": first["captures"],
        "context": first["context"],
        "job_id": row["job_id"],
    }


def _of_verdicts(make: str) -> Shape:
    read = "bot.ci.logs.store.exported_rows:read_verdicts"
    return Shape(make=f"bot.ci.logs.exports:{make}", read=read, most=500)


ADDITIONS = (
    Addition(
        export="workflow_job",
        layouts=frozenset({"clickhouse.upstream"}),
        table=ci_verdict,
        key=("repository_id", "job_id"),
        read="bot.ci.logs.exports:classify_jobs",
    ),
)
EXPORTS = (
    Export(
        name="logs",
        table=ci_log,
        day="fetched_at",
        shapes={
            "upstream": Shape(
                make="bot.ci.logs.exports:copy_log",
                read="bot.ci.logs.store.exported_rows:read_logs",
                load="bot.ci.logs.exports:load_logs",
                most=TOGETHER,
            ),
            "clickhouse.ootbot": Shape(make="bot.ci.logs.exports:copy_log_row"),
        },
    ),
    Export(
        name="verdicts",
        table=ci_verdict,
        key=("repository_id", "job_id"),
        day="at",
        condition=ci_verdict.c.current,
        shapes={
            "upstream": _of_verdicts("copy_verdicts"),
            "clickhouse.ootbot": _of_verdicts("copy_verdict_rows"),
            "dynamodb": _of_verdicts("classify_item"),
        },
    ),
)
