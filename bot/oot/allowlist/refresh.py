"""allowlist: reads and checks the file that says who takes part and, if it is valid, puts it in force.

It is read every half minute, and at once after a push that may have changed it; on GitHub an unchanged file is
answered with 304, which costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.core.errors import RetryLater
from bot.ingest.watched import Watched, owner_of
from bot.oot.allowlist import allowlist
from bot.oot.allowlist import rows as allowlists
from bot.oot.allowlist import source as source_file
from bot.oot.allowlist.source import on_github

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.allowlist.refresh")

SOON = 60.0  # seconds: even where GitHub asks to wait longer


async def refresh_allowlist(context: Context, _task: Task) -> None:
    """Read the allowlist again."""
    await refresh(context)


async def refresh(context: Context) -> None:
    """Read the allowlist; an unreadable or wrong one leaves the last good version in force and says so."""
    source = context.settings.allowlist
    default_events = frozenset(context.settings.default_events)
    content, error, unreachable = "", None, None
    try:
        content = await source_file.read_source(source, context.app_for)
        allowlists.parse(content, default_events)
    except RetryLater as problem:
        unreachable = problem
        error = f"{source} cannot be read: GitHub cannot be reached: {problem}"
    except source_file.NoText as problem:
        error = f"{source} cannot be read: {problem}"
    except allowlist.AllowlistError as problem:
        error = allowlist.render_errors(problem)
    async with context.store.transaction() as tx:
        before = await allowlists.in_force(tx)
        changed = await allowlists.record(
            tx, source=source, content=content, error=error, default_events=default_events
        )
        if changed and error is None and await allowlists.in_force(tx) != before:
            tx.enqueue("publish_open", "")  # which backends block may have changed
    if changed and error:
        then = "the last good version stays in force" if before is not None else "nobody takes part"
        log.error("the allowlist is wrong", then=then, source=source, error=error)
    elif changed:
        log.info("allowlist in force", source=source)
    if unreachable:
        raise RetryLater(str(unreachable), after=min(unreachable.after or SOON, SOON))


async def watched(tx: Transaction, settings: Settings) -> Watched:
    """Return every backend that is or was listed, and the accounts of those that are, and of the allowlist's file."""
    in_force = await allowlists.in_force(tx)
    source = on_github(settings.allowlist)
    repos = [entry.repo for entry in (in_force.entries if in_force else ())] + (
        [source.repo] if source else []
    )
    return Watched(
        repositories=frozenset(await allowlists.levels(tx)),
        accounts=frozenset(map(owner_of, repos)),
        named=frozenset({source.repo.casefold()} if source else ()),
    )
