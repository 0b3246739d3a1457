"""Which files does a pull request change? Only there can a failed test be annotated; GitHub is asked once a head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.errors import GitHubRefused, RetryLater
from bot.store import pulls

if TYPE_CHECKING:
    from bot.context import Context
    from bot.query import PullState
    from bot.store import Transaction

log = structlog.get_logger("bot.tasks.changed_files")

MOST_FILES = 3000  # GitHub lists no more files of a pull request


async def find(context: Context, state: PullState) -> frozenset[str]:
    """Return the files the newest head changes; none where no failed test asks for them or GitHub does not say."""
    async with context.store.read() as tx:
        known = await _known(tx, state)
    return await _ask(context, state) if known is None else known


async def _known(tx: Transaction, state: PullState) -> frozenset[str] | None:
    """Return the files as far as any failed test asks for them; None: GitHub knows."""
    head = state.current
    if head is None or not any(
        test.file for backend in head.view.backends for job in backend.failing for test in job.failed_tests
    ):
        return frozenset()
    sha, base_ref = head.view.head_sha, state.base_ref or ""
    return await pulls.changed_files(tx, state.repo, state.number, sha, base_ref=base_ref)


async def _ask(context: Context, state: PullState) -> frozenset[str]:
    """Ask GitHub and keep what it says."""
    client = context.github.client(state.repo, pull_requests="read")
    url = client.path(f"pulls/{state.number}/files{{?per_page}}")
    paths: list[str] = []
    try:
        async for one in client.getiter(url, {"per_page": "100"}):
            paths.append(one["filename"])
            if len(paths) == MOST_FILES:
                break
    except (GitHubRefused, RetryLater) as error:
        log.warning("changed files cannot be read", repo=state.repo, pull=state.number, reason=str(error))
        return frozenset()
    head, base_ref = state.heads[0].view.head_sha, state.base_ref or ""
    async with context.store.transaction() as tx:
        await pulls.keep_changed_files(tx, state.repo, state.number, head, paths, base_ref=base_ref)
    return frozenset(paths)
