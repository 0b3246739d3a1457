"""Merge queues: the commits that wait for a gate, and the pull requests each of them builds on."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ingest.prune import BATCH, DAY, in_batches
from bot.oot.publish.rows import MergeGroupRow
from bot.oot.publish.tables import oot_merge_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction

GROUP = oot_merge_group.c
RETENTION = 30 * DAY  # also of groups whose end was never delivered


async def begin(tx: Transaction, repo: str, head_sha: str, *, base_sha: str | None, number: int) -> None:
    """Record that a queue waits for the gate on one of its commits; one that has already ended stays ended."""
    values = {
        "upstream_repo": repo, "head_sha": head_sha, "base_sha": base_sha, "pr_number": number,
        "created_at": tx.now, "ended_at": None,
    }  # fmt: skip
    await tx.run(tx.insert(oot_merge_group).values(values).on_conflict_do_nothing())


async def end(tx: Transaction, repo: str, head_sha: str, *, number: int) -> None:
    """Record that a commit was merged or left the queue; this event can arrive before the one that adds it."""
    values = {
        "upstream_repo": repo, "head_sha": head_sha, "base_sha": None, "pr_number": number,
        "created_at": tx.now, "ended_at": tx.now,
    }  # fmt: skip
    insert = tx.insert(oot_merge_group).values(values)
    same = ["upstream_repo", "head_sha"]
    await tx.run(
        insert.on_conflict_do_update(index_elements=same, set_={"ended_at": insert.excluded.ended_at})
    )


async def waiting(tx: Transaction, repo: str) -> list[MergeGroupRow]:
    """Return the commits on which the queues of a repository wait, oldest first."""
    query = sa.select(oot_merge_group).where(GROUP.upstream_repo == repo, GROUP.ended_at.is_(None))
    return await tx.rows_as(MergeGroupRow, query.order_by(GROUP.created_at, GROUP.head_sha))


def chain(groups: Sequence[MergeGroupRow], head_sha: str) -> list[int]:
    """Return the pull requests in a commit of the queue: its own first, then those it builds on."""
    by_head = {group["head_sha"]: group for group in groups}
    numbers: list[int] = []
    at: str | None = head_sha
    while at is not None and (group := by_head.pop(at, None)):
        numbers.append(group["pr_number"])
        at = group["base_sha"]
    return numbers


def behind(groups: Sequence[MergeGroupRow], number: int) -> set[int]:
    """Return the pull requests whose commits build directly on one of this pull request's."""
    mine = {group["head_sha"] for group in groups if group["pr_number"] == number}
    return {group["pr_number"] for group in groups if group["base_sha"] in mine} - {number}


async def prune(context: Context) -> dict[str, int]:
    """Delete groups that are too old for any queue to wait for."""
    find = functools.partial(_old, before=context.clock.now() - RETENTION, limit=BATCH)
    return {"merge_groups": await in_batches(context, find, _delete)}


async def _old(tx: Transaction, *, before: int, limit: int) -> list[tuple[str, str]]:
    query = sa.select(GROUP.upstream_repo, GROUP.head_sha).where(GROUP.created_at < before).limit(limit)
    return [(row.upstream_repo, row.head_sha) for row in await tx.run(query)]


async def _delete(tx: Transaction, keys: Sequence[tuple[str, str]]) -> None:
    await tx.run(sa.delete(oot_merge_group).where(tx.among([GROUP.upstream_repo, GROUP.head_sha], keys)))
