"""What do the commits of merge queues build on? GitHub is asked where neither our groups nor the pushes tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GitHubRefused, RetryLater
from bot.oot.publish import merge_queue_rows
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.ingest.reconcile import Window
    from bot.oot.publish.tables import MergeGroupRow
    from bot.oot.verdict.pull_state import PullState

log = structlog.get_logger("bot.oot.publish.queue_bases")

ASKED_FOR = 86_400_000  # milliseconds a group is asked about: no queue waits longer
MOST_ASKED = 50  # groups at once
CONTAINS = frozenset({"ahead", "identical"})  # GitHub's words on a branch compared with a commit of its own


async def read_queue_bases(context: Context, state: PullState) -> None:
    """Ask at once what a pull request's groups build on, if that was never asked; reconcile asks again."""
    async with context.store.read() as tx:
        mine = [
            row
            for row in await merge_queue_rows.groups_of_pull(tx, state.repo, state.number)
            if row["ended_at"] is None
        ]
        unknown = await merge_queue_rows.unknown_bases(tx, mine)
    try:
        await _ask(context, [row for row in unknown if row["asked_at"] is None])
    except RetryLater as error:
        log.info("what a queue builds on is asked for later", repo=state.repo, reason=str(error))


async def reconcile_queue_bases(context: Context, repo: str, _window: Window) -> int:
    """Ask about every group whose base is unknown; returns how many are known now."""
    async with context.store.read() as tx:
        recent = [
            row
            for row in await merge_queue_rows.waiting_groups(tx, repo)
            if row["created_at"] > tx.now - ASKED_FOR
        ]
        unknown = await merge_queue_rows.unknown_bases(tx, recent)
    return await _ask(context, unknown[:MOST_ASKED])


async def _ask(context: Context, groups: Sequence[MergeGroupRow]) -> int:
    found = 0
    for group in groups:
        known = await _is_on_branch(context, group)
        async with context.store.transaction() as tx:
            await merge_queue_rows.note_base(tx, group, known=known)
            if known:
                request_publish(tx, group["upstream_repo"], group["pr_number"])
        found += known
    return found


async def _is_on_branch(context: Context, group: MergeGroupRow) -> bool:
    """Whether GitHub says that a group's base is a commit of its base branch."""
    repo, base, branch = group["upstream_repo"], group["base_sha"], group["base_ref"]
    if base is None or branch is None:
        return False
    client = context.github.client(repo, since=group["created_at"], contents="read")
    url = client.path("compare/{base}...{head}{?page,per_page}")  # the first page alone lists files
    try:
        found = await client.getitem(url, {"base": base, "head": branch, "page": "2", "per_page": "1"})
    except GitHubRefused as error:
        log.warning("GitHub does not tell what a queue builds on", repo=repo, base=base, reason=str(error))
        return False
    return found["status"] in CONTAINS
