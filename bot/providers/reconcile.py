"""Commit statuses that have no end yet, compared with GitHub: their last event may have been lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot.ci.collect import budget
from bot.ci.collect.settings import CollectSettings
from bot.ci.trunk.store import rows as trunk_rows
from bot.core.errors import GitHubRefused, OverBudget
from bot.core.json_fields import Kind, read_member
from bot.ingest import inbox, watched
from bot.ingest.delivery import as_incoming, guid
from bot.providers import rows
from bot.providers.trust import is_trusted
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from bot.context import Context
    from bot.ingest.inbox import Incoming
    from bot.ingest.reconcile import Window

log = structlog.get_logger("bot.providers.reconcile")

DAYS = 3  # a status that has no end by then stays so
LOOKED_AT, COMMITS_MOST = 500, 10


async def compare_statuses(context: Context, repo: str, window: Window) -> int:
    """Store what GitHub says of trusted heads with open statuses; returns how many statuses were behind."""
    shas = await _open_heads(context, repo, window)
    behind = 0
    for sha in shas:
        try:
            await budget.spend_call(context, repo)
            client = context.app_for(repo).by_name(repo, statuses="read")
            found = await client.getitem(
                f"/repos/{repo}/commits/{sha}/status{{?per_page}}", {"per_page": "100"}
            )
        except OverBudget:
            return behind
        except GitHubRefused as error:  # the App need not have the permission any more
            log.info("commit statuses cannot be read", repo=repo, reason=str(error))
            return behind
        async with context.store.transaction() as tx:
            for one in _deliveries(found):
                behind += await inbox.put(tx, one)
    return behind


async def _open_heads(context: Context, repo: str, window: Window) -> list[str]:
    now = context.clock.now()
    async with context.store.read() as tx:
        period = (max(window.since, now - DAYS * DAY), window.complete_until)
        found = await rows.open_statuses(tx, repo, received=period, limit=LOOKED_AT)
        ids = await watched.ids(tx, repo) if found else set()
        repository = await trunk_rows.repository(tx, ids) if ids else None
    default = repository["default_branch"] if repository else None
    patterns = context.settings.of(CollectSettings).ci_trusted_branches
    heads = [
        row["head_sha"]
        for row in found
        if row["head_sha"] and is_trusted(row, default_branch=default, patterns=patterns)
    ]
    return list(dict.fromkeys(heads))[:COMMITS_MOST]


def _deliveries(answer: Any) -> list[Incoming]:
    """Return the statuses of a commit as deliveries: pending ones say nothing new."""
    sha, repository = read_member(answer, ("sha",), Kind.TEXT), answer.get("repository")
    found = []
    for one in answer.get("statuses") or ():
        if one.get("state") == "pending":
            continue
        body = {**one, "sha": sha, "repository": repository}
        content = f"status {sha} {one.get('id')} {one.get('state')} {one.get('updated_at')}"
        found.append(as_incoming(guid(content), "status", body, source="api"))
    return found
