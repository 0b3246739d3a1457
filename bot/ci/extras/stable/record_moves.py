"""stable_pushes: notes where the last good commit of each upstream's default branch moves to. Key: nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.extras import source_rows
from bot.ci.extras.source_rows import DAY
from bot.ci.extras.stable import stable_rows
from bot.ci.extras.stable.tables import stable_push
from bot.ci.trunk import last_good
from bot.ci.trunk.reading import Branch
from bot.ci.trunk.store import rows
from bot.core.errors import Rejected
from bot.ingest import watched

if TYPE_CHECKING:
    from bot.ci.extras.stable.tables import StablePushRow
    from bot.ci.trunk.last_good import LastGood
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task


async def record_moves(context: Context, _task: Task) -> None:
    """Note the last good commit of each upstream, where it has moved."""
    for repo in context.settings.upstream_repo:
        async with context.store.read() as tx:
            branch = await _default_branch(tx, repo)
            found = await _last_good(tx, context, branch) if branch else None
        if branch is None or found is None:
            continue
        async with context.store.transaction() as tx:
            await stable_rows.add_move(tx, _row(tx, branch, found))


async def _default_branch(tx: Transaction, repo: str) -> Branch | None:
    ids = await watched.ids(tx, repo)
    found = await rows.repository(tx, ids) if ids else None
    if found is None or not found["default_branch"]:
        return None
    names = await watched.names_of_same_repository(tx, found["full_name"])
    return Branch(repository=found, names=frozenset(names), name=found["default_branch"])


async def _last_good(tx: Transaction, context: Context, branch: Branch) -> LastGood | None:
    try:
        return await last_good.find_last_good(
            tx, context.settings, branch, jobs=last_good.BLOCKING, backends=()
        )
    except Rejected:  # no commit among the newest is good
        return None


def _row(tx: Transaction, branch: Branch, found: LastGood) -> StablePushRow:
    return {
        "repository_id": branch.repository["repository_id"],
        "branch": branch.name,
        "sha": found.commit["sha"],
        "committed_at": found.commit["at"],
        "title": found.commit["title"],
        "jobs_passed": found.columns,
        "day": tx.now // DAY,
        "at": tx.now,
    }


async def prune(context: Context) -> dict[str, int]:
    """Delete moves past the retention of results."""
    return await source_rows.delete_old(context, {"stable commits": stable_push})
