"""Where did a pull request's head leave its base branch? Asked of GitHub once for both, when something failed there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.errors import GitHubRefused, RetryLater
from bot.store import pulls

if TYPE_CHECKING:
    from bot.context import Context
    from bot.query import PullState

log = structlog.get_logger("bot.tasks.merge_base")


async def ask(context: Context, state: PullState) -> bool:
    """Learn the merge base of the newest head if a failure is to be compared with it; returns whether it is new."""
    head = state.current
    if head is None or not any(backend.failing for backend in head.view.backends):
        return False
    sha, base_ref = head.view.head_sha, state.base_ref or ""
    base = next(
        (facts.dispatch["base_sha"] for facts in head.facts.values() if facts.dispatch["base_sha"]), None
    )
    async with context.store.read() as tx:
        asked = sha in await pulls.merge_bases(tx, state.repo, [sha], base_ref=base_ref)
    if asked or base is None:
        return False
    client = context.github.client(state.repo, contents="read")
    url = client.path("compare/{base}...{head}{?page,per_page}")  # the first page alone lists files
    try:
        found = await client.getitem(url, {"base": base, "head": sha, "page": "2", "per_page": "1"})
        merge_base = found["merge_base_commit"]["sha"]
    except GitHubRefused as error:
        log.warning("no merge base", repo=state.repo, pull=state.number, reason=str(error))
        merge_base = None
    except RetryLater as error:
        log.info("the merge base is asked for later", repo=state.repo, pull=state.number, reason=str(error))
        return False
    async with context.store.transaction() as tx:
        await pulls.keep_merge_base(tx, state.repo, sha, merge_base, base_ref=base_ref)
    return merge_base not in {None, base}
