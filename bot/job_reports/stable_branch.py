"""Stable commits: where the last good commit of each upstream's default branch moves to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.errors import Rejected
from bot.db.rows import select
from bot.ingest import repositories
from bot.job_reports import documents
from bot.job_reports.documents import DAY_MS
from bot.job_reports.tables import StablePushRow, stable_push
from bot.jobs import last_good, rows
from bot.jobs.branch_reads import Branch

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.jobs.last_good import LastGood
    from bot.queue.tasks import Task

PUSH = stable_push.c


async def add_move(tx: Transaction, row: StablePushRow) -> None:
    """Store a move; a known one stays as it is."""
    if (await tx.run(tx.insert(stable_push).on_conflict_do_nothing(), [row])).rowcount:
        tx.note_changed("stable_push", [row])


async def newest_moves(
    tx: Transaction, owners: Collection[int], *, since: int, limit: int
) -> list[StablePushRow]:
    """Return the moves since a time, the newest first."""
    query = select(StablePushRow, stable_push).where(PUSH.repository_id.in_(sorted(owners)), PUSH.at >= since)
    return await tx.fetch(query.order_by(PUSH.at.desc(), PUSH.sha).limit(limit))


async def record_moves(context: Context, _task: Task) -> None:
    """Note the last good commit of each upstream, if it moved."""
    for repo in context.settings.upstream_repo:
        async with context.store.read() as tx:
            branch = await _default_branch(tx, repo)
            last_good_commit = await _find_last_good(tx, context, branch) if branch else None
        if branch is None or last_good_commit is None:
            continue
        async with context.store.transaction() as tx:
            await add_move(tx, _push_row(tx, branch, last_good_commit))


async def prune_moves(context: Context) -> dict[str, int]:
    """Delete moves past the retention of results."""
    return await documents.delete_old(context, {"stable commits": stable_push})


async def _default_branch(tx: Transaction, repo: str) -> Branch | None:
    ids = await repositories.read_ids(tx, repo)
    repository = await rows.repository(tx, ids) if ids else None
    if repository is None or not repository["default_branch"]:
        return None
    names = await repositories.read_names_of_same(tx, repository["full_name"])
    return Branch(repository=repository, names=frozenset(names), name=repository["default_branch"])


async def _find_last_good(tx: Transaction, context: Context, branch: Branch) -> LastGood | None:
    try:
        return await last_good.find_last_good(
            tx, context.settings, branch, jobs=last_good.BLOCKING, backends=()
        )
    except Rejected:  # no commit among the newest is good
        return None


def _push_row(tx: Transaction, branch: Branch, last_good_commit: LastGood) -> StablePushRow:
    return {
        "repository_id": branch.repository["repository_id"],
        "branch": branch.name,
        "sha": last_good_commit.commit["sha"],
        "committed_at": last_good_commit.commit["at"],
        "title": last_good_commit.commit["title"],
        "jobs_passed": last_good_commit.columns,
        "day": tx.now // DAY_MS,
        "at": tx.now,
    }
