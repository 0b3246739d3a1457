"""Rows of daily sums as they leave for sinks: all of one key together."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.exports import Export, Key, Row
    from bot.db.transaction import Transaction

DAYS_AT_ONCE = 50


async def read_days(tx: Transaction, export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return the rows of days as `rows`, in the order of the table's key."""
    found: defaultdict[Key, list[dict[str, Any]]] = defaultdict(list)
    columns = list(export.key_columns)
    for start in range(0, len(keys), DAYS_AT_ONCE):
        query = sa.select(export.table).where(tx.among(columns, keys[start : start + DAYS_AT_ONCE]))
        for row in await tx.rows(query.order_by(*export.table.primary_key.columns)):
            found[export.key_of(row)].append(row)
    names = [column.name for column in columns]
    return {key: {**dict(zip(names, key, strict=True)), "rows": rows} for key, rows in found.items()}
