"""Records with the deliveries they came with: GitHub's whole object, of which a record keeps some fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.exports import read_rows
from bot.ingest.compression import decompress
from bot.ingest.tables import delivery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.exports import Export, Key, Row
    from bot.db.transaction import Transaction

LARGEST = 4 * 1024 * 1024  # bytes of a body as stored; of a larger one the record has to do


async def read_with_source(tx: Transaction, export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return records, each with the body it came with as `source`; None where that is no longer kept."""
    rows = await read_rows(tx, export, keys)
    guids = sorted({row["merge_state"]["guid"] for row in rows.values()})
    query = sa.select(delivery.c.guid, delivery.c.codec, delivery.c.body).where(
        delivery.c.guid.in_(guids), sa.func.length(delivery.c.body) <= LARGEST
    )
    sources = {row.guid: (row.body, row.codec) for row in await tx.run(query)}
    return {key: {**row, "source": sources.get(row["merge_state"]["guid"])} for key, row in rows.items()}


def source_body(row: Row) -> bytes | None:
    """Return the body that a record came with, as it was received."""
    return None if row["source"] is None else decompress(*row["source"])
