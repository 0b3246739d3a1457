"""Which version of the allowlist is in force? Every version read is kept; the newest valid one counts."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.domain import allowlist
from bot.store.tables import allowlist_version

if TYPE_CHECKING:
    from bot.domain.allowlist import Allowlist
    from bot.store.transaction import Transaction

_parse = lru_cache(maxsize=8)(allowlist.parse)  # pure: the same text is the same list


async def in_force(tx: Transaction) -> Allowlist | None:
    """Return the allowlist in force, None when no valid one was ever read."""
    row = await last_good(tx)
    return None if row is None else _parse(row["content"])


async def last_good(tx: Transaction) -> dict[str, Any] | None:
    """Return the version in force as it was kept, None when no valid one was ever read."""
    query = sa.select(allowlist_version).where(allowlist_version.c.valid)
    return await tx.row(query.order_by(allowlist_version.c.id.desc()).limit(1))


async def newest(tx: Transaction) -> dict[str, Any] | None:
    """Return the version read last, valid or not."""
    return await tx.row(sa.select(allowlist_version).order_by(allowlist_version.c.id.desc()).limit(1))


async def keep(tx: Transaction, *, source: str, content: str, error: str | None) -> bool:
    """Keep a version as read; returns False when it is the one read last."""
    digest = hashlib.sha256(f"{source}\n{error is None}\n{content}".encode()).hexdigest()
    last = await newest(tx)
    if last and last["digest"] == digest and last["error"] == error:
        return False
    await tx.run(
        sa.insert(allowlist_version).values(
            digest=digest,
            source=source,
            content=content,
            valid=error is None,
            error=error,
            loaded_at=tx.now,
        )
    )
    return True
