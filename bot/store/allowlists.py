"""Which version of the allowlist is in force? Every version read is kept; the newest valid one counts."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.domain import allowlist
from bot.domain.allowlist_source import on_github
from bot.store.rollup_tables import oot_level
from bot.store.tables import allowlist_version

if TYPE_CHECKING:
    from bot.domain.allowlist import Allowlist
    from bot.domain.allowlist_source import OnGitHub
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


async def source_on_github(tx: Transaction) -> OnGitHub | None:
    """Return the file on GitHub that was read last; None when it was one on disk, or nothing was read yet."""
    query = sa.select(allowlist_version.c.source).order_by(allowlist_version.c.id.desc()).limit(1)
    return on_github((await tx.run(query)).scalar() or "")


async def keep(tx: Transaction, *, source: str, content: str, error: str | None) -> bool:
    """Keep a version as read; returns False when it is the one read last."""
    if not tx.sqlite:  # two processes that begin together read the same file
        await tx.run(sa.text("LOCK TABLE allowlist_version IN SHARE ROW EXCLUSIVE MODE"))
    digest = hashlib.sha256(f"{source}\n{error is None}\n{content}".encode()).hexdigest()
    last = await newest(tx)
    if last and last["digest"] == digest and last["error"] == error:
        return False
    if error is None:
        await _keep_levels(tx, content)
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


async def levels(tx: Transaction) -> dict[str, tuple[int, int]]:
    """Return level and since when (epoch milliseconds) of every backend that was ever listed; 0: not any more."""
    rows = await tx.rows(sa.select(oot_level).order_by(oot_level.c.since))
    return {row["backend_key"]: (row["level"], row["since"]) for row in rows}


async def _keep_levels(tx: Transaction, content: str) -> None:
    """Note whose level a new version changes."""
    known = {key: level for key, (level, _) in (await levels(tx)).items()}
    now = {entry.key: int(entry.level) for entry in _parse(content).entries}
    changed = [key for key in {**known, **now} if now.get(key, 0) != known.get(key, 0)]
    insert = tx.insert(oot_level)
    last = {"level": insert.excluded.level}  # of two versions in one moment
    rows = [{"backend_key": key, "since": tx.now, "level": now.get(key, 0)} for key in changed]
    if rows:
        await tx.run(insert.on_conflict_do_update(index_elements=["backend_key", "since"], set_=last), rows)
