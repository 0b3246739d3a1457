"""Conditions that notices report: a search found the upstream commit that broke something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.conditions import Condition, Subject
from bot.oot.allowlist import rows as allowlists
from bot.oot.culprits import rows
from bot.oot.culprits.views import page_of

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.conditions import Scope
    from bot.db.transaction import Transaction

RECENT = 86_400_000  # milliseconds: what was found before, while nothing was sent, is on the pages only


async def read_conditions(_context: Context, tx: Transaction, scope: Scope) -> list[Condition]:
    """Return the culprits that were found in the last day; that a search is over never changes again."""
    listed = await allowlists.in_force(tx)
    found = []
    for search in await rows.found_since(tx, None, tx.now - RECENT):
        backend = search["backend"]
        if scope.hidden.has(search["upstream_repo"], search["repository_id"]) or (
            backend and scope.hidden.has(backend)
        ):
            continue
        entry = listed.find(backend) if listed and backend else None
        about = Subject(
            repo=search["upstream_repo"],
            branch=search["branch"],
            backend=backend,
            oncalls=entry.oncalls if entry else (),
            path=page_of(search),
        )
        found.append(
            Condition(
                event="culprit_found",
                key=search["id"],
                holds=True,
                heading=search["why"],
                since=search["ended_at"],
                subject=about,
            )
        )
    return found
