"""allowlist: the file that says who may take part is read, checked and, when it is valid, put in force.

Read again and again (bot/tasks/__init__.py says how often) and at once after a push that may have changed it. On
GitHub an unchanged file is answered with 304, which costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot import allowlist_text
from bot.domain import allowlist
from bot.errors import RetryLater
from bot.store import allowlists
from bot.tasks import publish

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.allowlist")

SOON = 60.0  # seconds: GitHub may ask for longer, but nobody asks it anything then


async def run(context: Context, _task: Task) -> None:
    """Read the allowlist again."""
    await refresh(context)


async def refresh(context: Context) -> None:
    """Read the allowlist; an unreadable or wrong one leaves the last good version in force and says so."""
    source = context.settings.allowlist
    content, error, unreachable = "", None, None
    try:
        content = await allowlist_text.read(source, context.app_for)
        allowlist.parse(content)
    except RetryLater as problem:
        unreachable = problem
        error = f"{source} cannot be read: GitHub cannot be reached: {problem}"
    except allowlist_text.NoText as problem:
        error = f"{source} cannot be read: {problem}"
    except allowlist.AllowlistError as problem:
        error = allowlist.render_errors(problem)
    async with context.store.transaction() as tx:
        before = await allowlists.in_force(tx)
        changed = await allowlists.keep(tx, source=source, content=content, error=error)
        if changed and error is None and await allowlists.in_force(tx) != before:
            await publish.all_open(tx, context.settings)  # who blocks may have changed
    if changed and error:
        then = "the last good version stays in force" if before is not None else "nobody takes part"
        log.error("the allowlist is wrong", then=then, source=source, error=error)
    elif changed:
        log.info("allowlist in force", source=source)
    if unreachable:
        raise RetryLater(str(unreachable), after=min(unreachable.after or SOON, SOON))
