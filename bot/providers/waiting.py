"""Task providers: has events handled that came before GitHub said which repositories the settings mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.ingest import pinned
from bot.ingest.watched import Watched
from bot.providers import rows
from bot.providers.settings import KINDS, providers_of

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.providers.waiting")


async def handle_waiting(context: Context, _task: Task) -> None:
    """Have what was parked handled, of every repository that is known by now."""
    mapped = mapped_repositories(context.settings)
    if not mapped:
        return
    async with context.store.transaction() as tx:
        known = mapped & (await pinned.pinned_ids(tx)).keys()
        done = await rows.handle_waiting(tx, known, KINDS) if known else 0
    if done:
        log.info("events of other CIs that waited for their repository are handled", events=done)


async def watched(_tx: Transaction, settings: Settings) -> Watched:
    """Return the repositories that other CIs are mapped to: GitHub is asked for their ids, and who may see them."""
    return Watched(repositories=frozenset(), accounts=frozenset(), named=mapped_repositories(settings))


def mapped_repositories(settings: Settings) -> frozenset[str]:
    """Return the repositories, case folded."""
    return frozenset(repo.casefold() for one in providers_of(settings) for repo in one.projects.values())
