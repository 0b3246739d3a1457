"""How does a pull request stand, with the labels GitHub shows where ours are in doubt?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot import query
from bot.domain.labels import in_doubt
from bot.errors import GitHubRefused
from bot.store import pulls

if TYPE_CHECKING:
    from bot.context import Context
    from bot.query import PullState
    from bot.store import Transaction

log = structlog.get_logger("bot.tasks.labels")


async def state_of(context: Context, repo: str, number: int) -> PullState:
    """Read and judge a pull request; its labels are asked of GitHub while nobody can tell which came last."""
    async with context.store.read() as tx:
        record = await pulls.get(tx, repo, number)
        doubtful = in_doubt(record, await pulls.label_events(tx, repo, number))
        if not (doubtful and context.settings.is_upstream(repo)):
            return await _state(tx, context, repo, number)
    labels = await _labels(context, repo, number)
    async with context.store.read() as tx:
        return await _state(tx, context, repo, number, labels)


async def _state(
    tx: Transaction, context: Context, repo: str, number: int, labels: frozenset[str] | None = None
) -> PullState:
    """Judge the newest heads, and older ones on which a check run has yet to be concluded."""
    return await query.pull_state(
        tx,
        context.settings,
        repo,
        number,
        labels=labels,
        newest=query.MOST_HEADS,
        also=await pulls.unfinished_heads(tx, repo, number),
        compared=query.MOST_HEADS,
    )


async def _labels(context: Context, repo: str, number: int) -> frozenset[str] | None:
    """Return the labels GitHub shows now; None, which means ours, where it does not say."""
    client = context.github.reader(repo, pull_requests="read")
    url = client.path(f"issues/{number}/labels{{?per_page}}")
    try:
        return frozenset([one["name"] async for one in client.getiter(url, {"per_page": "100"})])
    except GitHubRefused as error:
        log.warning("labels cannot be read", repo=repo, pull=number, reason=str(error))
        return None
