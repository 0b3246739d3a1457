"""Records with the deliveries they came with: GitHub's whole object, of which a record keeps some fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.core.json_fields import Unreadable, decode
from bot.db.exports import read_rows
from bot.ingest.compression import decompress
from bot.ingest.records import WORKFLOW_RUN
from bot.ingest.tables import delivery, records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.exports import Export, Key, Row
    from bot.db.transaction import Transaction

LARGEST = 4 * 1024 * 1024  # bytes of a body as stored; of a larger one the record has to do


async def read_with_source(tx: Transaction, export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return records, each with the body it came with as `source`; None where that is no longer kept."""
    rows = await read_rows(tx, export, keys)
    if export.name == WORKFLOW_RUN.table:
        rows = await _newest_attempts(tx, rows)
    guids = sorted({row["merge_state"]["guid"] for row in rows.values()})
    query = sa.select(delivery.c.guid, delivery.c.codec, delivery.c.body).where(
        delivery.c.guid.in_(guids), sa.func.length(delivery.c.body) <= LARGEST
    )
    sources = {row.guid: (row.body, row.codec) for row in await tx.run(query)}
    return {key: {**row, "source": sources.get(row["merge_state"]["guid"])} for key, row in rows.items()}


async def _newest_attempts(tx: Transaction, rows: dict[Key, Row]) -> dict[Key, Row]:
    """Return runs without attempts that a later one followed: both have one object."""
    c = records[WORKFLOW_RUN.table].c
    ids = sorted({row["id"] for row in rows.values()})
    query = sa.select(c.repository_id, c.id, sa.func.max(c.run_attempt)).where(c.id.in_(ids))
    newest = {tuple(row) for row in await tx.run(query.group_by(c.repository_id, c.id))}
    return {key: row for key, row in rows.items() if key in newest}


def source_payload(row: Row) -> dict[str, Any] | None:
    """Return the object that a record came with; None where it is no longer kept."""
    body = source_body(row)
    try:
        found = None if body is None else decode(body)
    except Unreadable:
        return None
    return found if isinstance(found, dict) else None


def source_body(row: Row) -> bytes | None:
    """Return the body that a record came with, as it was received."""
    return None if row["source"] is None else decompress(*row["source"])
