"""What sinks may have copies of: the records, and the deliveries as they came."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from bot.db.exports import Export, Shape
from bot.db.table_copies import COPIED
from bot.ingest import compression
from bot.ingest.archive import ENDED
from bot.ingest.exported_items import ITEM_TABLES
from bot.ingest.exported_tables import MAPPED
from bot.ingest.tables import delivery, records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.context import Context
    from bot.db.exports import Key, Row

DELIVERIES = "deliveries"
SOURCES = 200  # records read at once with the deliveries they came with
# a repository within a body, outside its texts: there quotes are escaped
PRIVATE = re.compile(rb'(?<!\\)"private"\s*:\s*true')


async def find_private(_context: Context, rows: Mapping[Key, Row]) -> dict[Key, Row]:
    """Add to deliveries whether they mention a private repository: of some there is no record that says so."""
    return await asyncio.to_thread(lambda: {key: _with_body(row) for key, row in rows.items()})


def _with_body(row: Row) -> dict[str, Any]:
    body = compression.decompress(row["body"], row["codec"])
    return {**row, "body": body, "codec": None, "private": PRIVATE.search(body) is not None}


def _with_bodies(make: str) -> Shape:
    return Shape(
        make=f"bot.ingest.exported_objects:{make}", load="bot.ingest.exports:find_private", most=SOURCES
    )


def _with_source(make: str) -> Shape:
    return Shape(make=make, read="bot.ingest.source_rows:read_with_source", most=SOURCES)


def _record_shapes(name: str) -> dict[str, Shape]:
    shapes = {
        "upstream": _with_source("bot.ingest.exported_objects:copy_object"),
        "clickhouse.ootbot": COPIED,
    }
    if name in MAPPED:
        shapes["clickhouse.upstream"] = _with_source("bot.ingest.exported_tables:copy_record")
    if name in ITEM_TABLES:
        shapes["dynamodb"] = _with_source("bot.ingest.exported_items:copy_item")
    return shapes


EXPORTS = (
    Export(
        name=DELIVERIES,
        table=delivery,
        key=("guid",),
        day="received_at",
        condition=delivery.c.state.in_(ENDED) & (delivery.c.state != "foreign"),
        shapes={
            "raw": _with_bodies("archive_delivery"),
            "upstream": _with_bodies("copy_delivery"),
            "clickhouse.ootbot": Shape(
                make="bot.ingest.exported_tables:copy_delivery_row",
                load="bot.ingest.exports:find_private",
                most=SOURCES,
            ),
        },
    ),
    *(
        Export(
            name=name,
            group="records",
            table=table,
            day="received_at",
            deleted="deleted_at",
            shapes=_record_shapes(name),
        )
        for name, table in records.items()
    ),
)
