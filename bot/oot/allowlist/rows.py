"""Versions of the allowlist: every one read is stored, the newest valid one is in force."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import RowStatement
from bot.oot.allowlist import allowlist
from bot.oot.allowlist.entry import DEFAULT_EVENTS
from bot.oot.allowlist.source import on_github
from bot.oot.allowlist.tables import VersionRow, allowlist_version, oot_level

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.allowlist.source import OnGitHub


LAST_GOOD = RowStatement(
    select(VersionRow, allowlist_version)
    .where(allowlist_version.c.valid)
    .order_by(allowlist_version.c.id.desc())
    .limit(1)
)
parse = lru_cache(maxsize=8)(allowlist.parse)  # pure: the same text is the same list


async def in_force(tx: Transaction) -> Allowlist | None:
    """Return the allowlist in force, None when no valid one was ever read."""
    row = await last_good(tx)
    return None if row is None else parsed(row)


def parsed(row: VersionRow) -> Allowlist:
    """Return a valid version as it was read."""
    return parse(row["content"], _events(row["default_events"]))


async def last_good(tx: Transaction) -> VersionRow | None:
    """Return the version in force as stored, None when no valid one was ever read."""
    return await tx.fetch_first(LAST_GOOD)


async def newest(tx: Transaction) -> VersionRow | None:
    """Return the version read last, valid or not."""
    return await tx.fetch_first(
        select(VersionRow, allowlist_version).order_by(allowlist_version.c.id.desc()).limit(1)
    )


async def source_on_github(tx: Transaction) -> OnGitHub | None:
    """Return the file on GitHub that was read last; None when it was one on disk, or nothing was read yet."""
    query = sa.select(allowlist_version.c.source).order_by(allowlist_version.c.id.desc()).limit(1)
    return on_github((await tx.run(query)).scalar() or "")


async def record(
    tx: Transaction, *, source: str, content: str, error: str | None, default_events: frozenset[str]
) -> bool:
    """Record a version as read; returns False when it is the one read last."""
    if not tx.sqlite:  # processes that start together read the same file
        await tx.run(sa.text("LOCK TABLE allowlist_version IN SHARE ROW EXCLUSIVE MODE"))
    digest = hashlib.sha256(f"{source}\n{error is None}\n{content}".encode()).hexdigest()
    last = await newest(tx)
    same = last and (last["digest"], last["error"]) == (digest, error)
    if same and last and _events(last["default_events"]) == default_events:
        return False
    if error is None:
        await _record_levels(tx, parse(content, default_events))
    await tx.run(
        sa.insert(allowlist_version).values(
            digest=digest,
            source=source,
            content=content,
            valid=error is None,
            error=error,
            loaded_at=tx.now,
            default_events=",".join(sorted(default_events)),
        )
    )
    return True


async def levels(tx: Transaction) -> dict[str, tuple[int, int]]:
    """Return level and since when (epoch milliseconds) of every backend that was ever listed; 0: not any more."""
    level = oot_level.c
    found = await tx.run(sa.select(level.backend_key, level.level, level.since).order_by(level.since))
    return {key: (level, since) for key, level, since in found}


async def level_history(tx: Transaction, backend: str) -> list[tuple[int, int]]:
    """Return the levels a backend had and since when (epoch milliseconds), newest first; 0: not listed."""
    level = oot_level.c
    query = sa.select(level.level, level.since).where(level.backend_key == backend.casefold())
    return [(one, since) for one, since in await tx.run(query.order_by(level.since.desc()))]


async def _record_levels(tx: Transaction, version: Allowlist) -> None:
    """Record backends whose level a new version changes."""
    known = {key: level for key, (level, _) in (await levels(tx)).items()}
    now = {entry.key: int(entry.level) for entry in version.entries}
    changed = [key for key in {**known, **now} if now.get(key, 0) != known.get(key, 0)]
    rows = [{"backend_key": key, "since": tx.now, "level": now.get(key, 0)} for key in changed]
    if rows:
        await tx.upsert(oot_level, rows, replaced=("level",))  # of two versions in one moment, the last


def _events(stored: str | None) -> frozenset[str]:
    return frozenset(stored.split(",")) if stored else DEFAULT_EVENTS
