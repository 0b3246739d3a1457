"""The store with the tables and before-commit hooks of every feature."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bot.core.feature import import_tables, load_each
from bot.db.store import BUSY_TIMEOUT, LOST_AFTER, Store
from bot.ingest import record_store
from bot.queue import tasks

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from bot.core.clock import Clock
    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.db.transaction import BeforeCommit, Changed, Transaction


def make_store(
    url: str,
    *,
    clock: Clock,
    features: Features,
    settings: Settings | None = None,
    busy_timeout: float = BUSY_TIMEOUT,
    lost_after: float = LOST_AFTER,
    inline: bool = False,
    compiled: MutableMapping[Any, Any] | None = None,
) -> Store:
    """Return the store: records are written first, then the features' hooks run in their order, tasks come last.

    The tables of every feature are in the schema then, whether or not anything else has imported them. Without
    settings no feature observes what changes.
    """
    import_tables(features)
    background = frozenset(kind for feature in features for kind in feature.background)
    queueing = partial(tasks.write_requests, background=background)
    observers = [make(settings, features) for make in load_each(features, "observer")] if settings else []
    of_features = partial(_run_each, (*load_each(features, "before_commit"), *filter(None, observers)))
    hooks = (record_store.write_records, of_features, queueing)
    return Store(
        url,
        clock=clock,
        before_commit=hooks,
        busy_timeout=busy_timeout,
        lost_after=lost_after,
        inline=inline,
        compiled=compiled,
    )


async def _run_each(hooks: Sequence[BeforeCommit], tx: Transaction, changed: Changed) -> None:
    """Run the features' hooks in turn: only where a row has changed, since most transactions change none of theirs."""
    if changed:
        for hook in hooks:
            await hook(tx, changed)
