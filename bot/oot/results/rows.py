"""Which repositories our rows are about, how they are spelled, and which of them are private."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bot.ingest import watched
from bot.oot.allowlist.source import on_github
from bot.oot.results.tables import oot_dispatch, oot_workflow_job
from bot.web.access import Private

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.db.transaction import Transaction


async def with_known_spelling(store: Store, settings: Settings) -> Settings:
    """Return the settings with upstream's names spelled as our rows spell them, if there are any.

    Otherwise a different case in the settings, or a rename that changes only the case, would leave earlier results and
    their check runs with another upstream.
    """
    async with store.read() as tx:
        dispatched = await watched.distinct_upstreams(tx, oot_dispatch)
        reported = await watched.distinct_upstreams(tx, oot_workflow_job)
    # dispatches take precedence over what a relay reported, the settings come last
    known = {
        name.casefold(): name
        for names in (settings.upstream_repo, sorted(reported), sorted(dispatched))
        for name in names
    }
    chosen = dict.fromkeys(known[name.casefold()] for name in settings.upstream_repo)
    return replace(settings, upstream_repo=tuple(chosen))


async def private(tx: Transaction, settings: Settings, asked: Collection[str]) -> Private:
    """Return which repositories are private according to their records, by every name they ever had.

    Only those asked for, upstream, the allowlist's own and those our rows are about: there may be any number of others.
    Upstream and the allowlist's own are private until GitHub has said otherwise.
    """
    source = on_github(settings.allowlist)
    named = {*settings.upstream_repo, *([source.repo] if source else [])}
    wanted = {*asked, *named, *await watched.distinct_upstreams(tx, oot_dispatch, oot_workflow_job)}
    ids = await watched.private_ids(tx, wanted)
    names = await watched.names_of_ids(tx, ids) | await watched.names_of_unknown_visibility(tx, named)
    return Private(names=frozenset(names), ids=frozenset(ids))
