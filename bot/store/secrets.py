"""Which random keys does this installation own? Made once, kept in the database, shared by its processes."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.store.tables import secret

if TYPE_CHECKING:
    from bot.store.transaction import Transaction

KEY_BYTES = 32


async def key(tx: Transaction, name: str) -> bytes:
    """Return the key of that name, made when it is first asked for."""
    query = sa.select(secret.c.value).where(secret.c.name == name)
    row = await tx.row(query)
    if row is None:
        fresh = {"name": name, "value": secrets.token_bytes(KEY_BYTES)}
        await tx.run(tx.insert(secret).values(fresh).on_conflict_do_nothing())
        row = await tx.row(query)
    assert row is not None
    return bytes(row["value"])
