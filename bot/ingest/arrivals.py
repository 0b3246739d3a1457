"""Storing what has arrived in the transaction that handles it: SQLite only, where deliveries wait in the spool.

Stored as `stored` first, a delivery would be read once more to be handled, and written once more to be marked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import sqlalchemy as sa

from bot.db.statements import Statement
from bot.ingest.inbox import COLUMNS
from bot.ingest.spooling import GUID, INSERT, REPLACE, STATE, is_ours
from bot.ingest.tables import ReceivedRow, delivery

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction
    from bot.ingest.spool import Values

NAMES = list(COLUMNS)
EVENT, REPO, RECEIVED_AT, BODY = (NAMES.index(name) for name in ("event", "repo", "received_at", "body"))
KNOWN = Statement(
    sa.select(delivery.c.guid).where(
        delivery.c.guid.in_(sa.select(sa.func.json_each(sa.bindparam("guids")).table_valued("value").c.value))
    )
)
INSERT_MARKED = (
    f"INSERT INTO delivery ({', '.join(NAMES)}, attempts) VALUES ({', '.join('?' * len(NAMES))}, ?)"  # noqa: S608 - our names
)


async def store(
    tx: Transaction, rows: Sequence[Values], stored: Sequence[Values], events: Collection[str]
) -> list[ReceivedRow]:
    """Store deliveries as handled, those of other events as ignored; returns both, for the caller to handle.

    `stored` are their rows with compressed bodies.
    Those that are in the inbox already stay as they are. Ours in place of a copy for another App is left to `claim`.
    """
    guids = msgspec.json.encode([row[GUID] for row in rows]).decode()
    known = set((await tx.run(KNOWN, {"guids": guids})).scalars())
    marked, again, taken = [], [], []
    for row, compressed in zip(rows, stored, strict=True):
        if row[GUID] in known:
            again.append(compressed)
            continue
        known.add(row[GUID])
        ours = is_ours(row)
        state = row[STATE] if not ours else "handled" if row[EVENT] in events else "ignored"
        marked.append((*compressed[:STATE], state, *compressed[STATE + 1 :], int(ours)))
        if ours:
            taken.append(
                ReceivedRow(
                    guid=row[GUID],
                    event=row[EVENT],
                    repo=row[REPO],
                    received_at=row[RECEIVED_AT],
                    codec=None,
                    body=row[BODY],
                )
            )
    if marked:
        await tx.conn.exec_driver_sql(INSERT_MARKED, marked)
    await _replace(tx, again)
    return taken


async def store_to_claim(tx: Transaction, stored: Sequence[Values]) -> None:
    """Store deliveries as `stored`: at least one of them could not be handled, so each is tried alone."""
    await tx.conn.exec_driver_sql(INSERT, list(stored))
    await _replace(tx, stored)


async def _replace(tx: Transaction, rows: Sequence[Values]) -> None:
    if ours := [row for row in rows if is_ours(row)]:
        await tx.conn.exec_driver_sql(REPLACE, ours)
