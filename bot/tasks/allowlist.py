"""allowlist: the file that says who may take part is read, checked and, when it is valid, put in force."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from bot.domain import allowlist
from bot.store import allowlists

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.allowlist")

MOST_BYTES = 1024 * 1024


async def run(context: Context, _task: Task) -> None:
    """Read the allowlist; an unreadable or wrong one leaves the last good version in force and says so."""
    source = context.settings.allowlist
    content, error = "", None
    try:
        content = await asyncio.to_thread(_read, Path(source))
        allowlist.parse(content)
    except (OSError, UnicodeDecodeError) as problem:
        error = f"{source} cannot be read: {problem}"
    except allowlist.AllowlistError as problem:
        error = allowlist.render_errors(problem)
    async with context.store.transaction() as tx:
        changed = await allowlists.keep(tx, source=source, content=content, error=error)
    if changed and error:
        log.error(
            "the allowlist is wrong; the last good version stays in force",
            source=source,
            error=error,
        )
    elif changed:
        log.info("allowlist in force", source=source)


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1).decode()
