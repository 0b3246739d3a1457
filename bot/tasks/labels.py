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

log = structlog.get_logger("bot.tasks.labels")


async def state_of(context: Context, repo: str, number: int) -> PullState:
    """Read and judge a pull request; its labels are asked of GitHub while nobody can tell which came last."""
    async with context.store.read() as tx:
        state = await query.pull_state(tx, context.settings, repo, number)
        doubtful = in_doubt(state.record, await pulls.label_events(tx, repo, number))
    if not (doubtful and state.heads and context.settings.is_upstream(repo)):
        return state
    labels = await _labels(context, state)
    async with context.store.read() as tx:
        return await query.pull_state(tx, context.settings, repo, number, labels=labels)


async def _labels(context: Context, state: PullState) -> frozenset[str]:
    """Return the labels GitHub shows now; ours where it does not say."""
    client = context.github.reader(state.repo, pull_requests="read")
    url = client.path(f"issues/{state.number}/labels{{?per_page}}")
    try:
        return frozenset([one["name"] async for one in client.getiter(url, {"per_page": "100"})])
    except GitHubRefused as error:
        log.warning("labels cannot be read", repo=state.repo, pull=state.number, reason=str(error))
        return state.labels
