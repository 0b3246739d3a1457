"""Versions of the allowlist: every one read is stored, the newest valid one is in force."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa
import structlog

from bot.core.errors import RetryLater
from bot.db.rows import Big, Bool, Int, Millis, Text, select, table
from bot.db.statements import RowStatement
from bot.ingest.repositories import Watched, owner_of
from bot.oot.allowlist import allowlist
from bot.oot.allowlist.allowlist import parse_github_source
from bot.oot.allowlist.entry import DEFAULT_EVENTS
from bot.oot.allowlist.yaml_document import AllowlistError

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Allowlist, OnGitHub
    from bot.queue.tasks import Task

parse_cached = lru_cache(maxsize=8)(allowlist.parse_allowlist)  # pure: the same text is the same list
log = structlog.get_logger("bot.oot.allowlist.versions")

REFRESH_SOON = 60.0  # seconds: even where GitHub asks to wait longer


class VersionRow(TypedDict):
    """One version of the allowlist, as read."""

    id: Big
    digest: Text
    source: Text
    content: Text
    valid: Bool
    error: Text | None
    loaded_at: Millis
    default_events: Text | None  # of entries that name none, when it was read; null: pull_request


allowlist_version = table("allowlist_version", VersionRow, key=("id",))


class LevelRow(TypedDict):
    """Since when a backend stands at a level."""

    backend_key: Text
    since: Big
    level: Int  # 0: not on the allowlist any more


oot_level = table("oot_level", LevelRow, key=("backend_key", "since"))

LAST_GOOD = RowStatement(
    select(VersionRow, allowlist_version)
    .where(allowlist_version.c.valid)
    .order_by(allowlist_version.c.id.desc())
    .limit(1)
)


async def read_in_force(tx: Transaction) -> Allowlist | None:
    """Return the allowlist in force, None when no valid one was ever read."""
    row = await read_last_good(tx)
    return None if row is None else parse_version(row)


def parse_version(row: VersionRow) -> Allowlist:
    """Parse a valid version again."""
    return parse_cached(row["content"], _events(row["default_events"]))


async def read_last_good(tx: Transaction) -> VersionRow | None:
    """Return the version in force as stored, None when no valid one was ever read."""
    return await tx.fetch_first(LAST_GOOD)


async def read_newest(tx: Transaction) -> VersionRow | None:
    """Return the version read last, valid or not."""
    return await tx.fetch_first(
        select(VersionRow, allowlist_version).order_by(allowlist_version.c.id.desc()).limit(1)
    )


async def read_source_on_github(tx: Transaction) -> OnGitHub | None:
    """Return the file on GitHub that was read last; None when it was one on disk, or nothing was read yet."""
    query = sa.select(allowlist_version.c.source).order_by(allowlist_version.c.id.desc()).limit(1)
    return parse_github_source((await tx.run(query)).scalar() or "")


async def record_version(
    tx: Transaction, *, source: str, content: str, error: str | None, default_events: frozenset[str]
) -> bool:
    """Record a version as read; returns False when it is the one read last."""
    if not tx.sqlite:  # processes that start together read the same file
        await tx.run(sa.text("LOCK TABLE allowlist_version IN SHARE ROW EXCLUSIVE MODE"))
    digest = hashlib.sha256(f"{source}\n{error is None}\n{content}".encode()).hexdigest()
    last = await read_newest(tx)
    same = last and (last["digest"], last["error"]) == (digest, error)
    if same and last and _events(last["default_events"]) == default_events:
        return False
    if error is None:
        await _record_levels(tx, parse_cached(content, default_events))
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


async def read_levels(tx: Transaction) -> dict[str, tuple[int, int]]:
    """Return level and start (epoch milliseconds) of every backend ever listed; level 0: no longer listed."""
    level = oot_level.c
    rows = await tx.run(sa.select(level.backend_key, level.level, level.since).order_by(level.since))
    return {key: (level, since) for key, level, since in rows}


async def read_level_history(tx: Transaction, backend: str) -> list[tuple[int, int]]:
    """Return the levels of a backend and their starts (epoch milliseconds), newest first; level 0: not listed."""
    level = oot_level.c
    query = sa.select(level.level, level.since).where(level.backend_key == backend.casefold())
    return [(number, since) for number, since in await tx.run(query.order_by(level.since.desc()))]


async def refresh_allowlist(context: Context, _task: Task) -> None:
    """Read the allowlist again."""
    await refresh(context)


async def refresh(context: Context) -> None:
    """Read the allowlist; an unreadable or wrong one leaves the last good version in force and says so."""
    source = context.settings.allowlist
    default_events = frozenset(context.settings.default_events)
    content, error, unreachable = "", None, None
    try:
        content = await allowlist.read_source(source, context.app_for)
        parse_cached(content, default_events)
    except RetryLater as problem:
        unreachable = problem
        error = f"{source} cannot be read: GitHub cannot be reached: {problem}"
    except allowlist.NoAllowlistText as problem:
        error = f"{source} cannot be read: {problem}"
    except AllowlistError as problem:
        error = allowlist.render_errors(problem)
    async with context.store.transaction() as tx:
        before = await read_in_force(tx)
        changed = await record_version(
            tx, source=source, content=content, error=error, default_events=default_events
        )
        if changed and error is None and await read_in_force(tx) != before:
            tx.enqueue("publish_open", "")  # which backends block may have changed
    if changed and error:
        then = "the last good version stays in force" if before is not None else "nobody takes part"
        log.error("the allowlist is wrong", then=then, source=source, error=error)
    elif changed:
        log.info("allowlist in force", source=source)
    if unreachable:
        raise RetryLater(str(unreachable), after=min(unreachable.after or REFRESH_SOON, REFRESH_SOON))


async def watch_backends(tx: Transaction, settings: Settings) -> Watched:
    """Return every backend that is or was listed, and the accounts of the listed ones and of the allowlist's file."""
    in_force = await read_in_force(tx)
    source = parse_github_source(settings.allowlist)
    repos = [entry.repo for entry in (in_force.entries if in_force else ())] + (
        [source.repo] if source else []
    )
    return Watched(
        repositories=frozenset(await read_levels(tx)),
        accounts=frozenset(map(owner_of, repos)),
        named=frozenset({source.repo.casefold()} if source else ()),
    )


async def _record_levels(tx: Transaction, version: Allowlist) -> None:
    """Record backends whose level a new version changes."""
    known = {key: level for key, (level, _) in (await read_levels(tx)).items()}
    now = {entry.key: int(entry.level) for entry in version.entries}
    changed = [key for key in {**known, **now} if now.get(key, 0) != known.get(key, 0)]
    rows = [{"backend_key": key, "since": tx.now, "level": now.get(key, 0)} for key in changed]
    if rows:
        await tx.upsert(oot_level, rows, replaced=("level",))  # of two versions in one moment, the last


def _events(stored: str | None) -> frozenset[str]:
    return frozenset(stored.split(",")) if stored else DEFAULT_EVENTS
