"""Random keys of this installation: created once, kept in the database, shared by its processes."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.columns import metadata
from bot.db.columns import must as _must
from bot.db.statements import Statement

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

KEY_BYTES = 32

secret = sa.Table(
    "secret",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    _must("value", sa.LargeBinary),
)


KEY = Statement(sa.select(secret.c.value).where(secret.c.name == sa.bindparam("key_name")))


async def key(tx: Transaction, name: str) -> bytes:
    """Return the key of that name, created on first use."""
    found: bytes | None = (await tx.run(KEY, {"key_name": name})).scalar()
    if found is None:
        fresh = {"name": name, "value": secrets.token_bytes(KEY_BYTES)}
        await tx.run(tx.insert(secret).values(fresh).on_conflict_do_nothing())
        found = (await tx.run(KEY, {"key_name": name})).scalar_one()
    return bytes(found)
