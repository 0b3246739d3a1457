"""Static keys of backends whose CI issues no tokens: reads and writes of oot_key. Secrets are not stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.oot.reports.tables import KeyRow, ListedKeyRow, oot_key

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction


PREFIX = "ootk_"
ID_BYTES, SECRET_BYTES = 6, 32
MOST_LENGTH = 200  # characters
USED_EVERY = 60_000  # milliseconds between two updates of used_at
UNKNOWN = hashlib.sha256(b"no such key").digest()


async def add_key(tx: Transaction, repo: str, *, note: str = "") -> str:
    """Make a key for a backend and return it: the only time it can be read."""
    identifier, secret = secrets.token_hex(ID_BYTES), secrets.token_hex(SECRET_BYTES)
    row = {
        "id": identifier,
        "repo": repo,
        "digest": _digest(secret),
        "note": note,
        "created_at": tx.now,
    }
    await tx.run(sa.insert(oot_key).values(row))
    return f"{PREFIX}{identifier}_{secret}"


async def find_key(tx: Transaction, key: str) -> KeyRow | None:
    """Return the row of a valid key, None for any other; compared in constant time."""
    identifier, _, secret = key.removeprefix(PREFIX).partition("_")
    if not key.startswith(PREFIX) or len(key) > MOST_LENGTH:
        return None
    row = await tx.fetch_first(select(KeyRow, oot_key).where(oot_key.c.id == identifier))
    right = hmac.compare_digest(row["digest"] if row else UNKNOWN, _digest(secret))
    return row if row and right and row["revoked_at"] is None else None


async def record_use(tx: Transaction, identifiers: Collection[str]) -> None:
    """Record that keys were used, to the minute."""
    stale = oot_key.c.used_at.is_(None) | (oot_key.c.used_at <= tx.now - USED_EVERY)
    if identifiers:
        these = oot_key.c.id.in_(sorted(identifiers))
        await tx.run(sa.update(oot_key).where(these, stale).values(used_at=tx.now))


async def list_keys(tx: Transaction) -> list[ListedKeyRow]:
    """Return every key ever made, oldest first, without digests."""
    query = select(ListedKeyRow, oot_key)
    return await tx.fetch(query.order_by(oot_key.c.created_at, oot_key.c.id))


async def revoke_key(tx: Transaction, identifier: str) -> bool:
    """Revoke a key at once; returns False when there is no such key in use."""
    valid = (oot_key.c.id == identifier, oot_key.c.revoked_at.is_(None))
    done = await tx.run(sa.update(oot_key).where(*valid).values(revoked_at=tx.now))
    return bool(done.rowcount)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
