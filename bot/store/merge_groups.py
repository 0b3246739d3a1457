"""On which commits does a merge queue wait for a verdict, and on what does each build?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.pull_tables import oot_merge_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.store.transaction import Transaction

Row = dict[str, Any]
GROUP = oot_merge_group.c


async def begin(tx: Transaction, repo: str, head_sha: str, *, base_sha: str | None, number: int) -> None:
    """Record that a queue waits for the gate on a commit of its own; one that has ended already stays so."""
    values = {
        "upstream_repo": repo, "head_sha": head_sha, "base_sha": base_sha, "pr_number": number,
        "created_at": tx.now, "ended_at": None,
    }  # fmt: skip
    await tx.run(tx.insert(oot_merge_group).values(values).on_conflict_do_nothing())


async def end(tx: Transaction, repo: str, head_sha: str, *, number: int) -> None:
    """Record that a commit of the queue was merged or taken out of it, also before it was heard of."""
    values = {
        "upstream_repo": repo, "head_sha": head_sha, "base_sha": None, "pr_number": number,
        "created_at": tx.now, "ended_at": tx.now,
    }  # fmt: skip
    insert = tx.insert(oot_merge_group).values(values)
    same = ["upstream_repo", "head_sha"]
    await tx.run(
        insert.on_conflict_do_update(index_elements=same, set_={"ended_at": insert.excluded.ended_at})
    )


async def waiting(tx: Transaction, repo: str) -> list[Row]:
    """Return the commits on which the queues of a repository wait, oldest first."""
    query = sa.select(oot_merge_group).where(GROUP.upstream_repo == repo, GROUP.ended_at.is_(None))
    return await tx.rows(query.order_by(GROUP.created_at, GROUP.head_sha))


async def old(tx: Transaction, *, before: int, limit: int) -> list[tuple[str, str]]:
    """Return what began before a time: no queue waits that long."""
    query = sa.select(GROUP.upstream_repo, GROUP.head_sha).where(GROUP.created_at < before).limit(limit)
    return [(row["upstream_repo"], row["head_sha"]) for row in await tx.rows(query)]


async def delete(tx: Transaction, keys: Sequence[tuple[str, str]]) -> None:
    """Forget commits of merge queues."""
    await tx.run(sa.delete(oot_merge_group).where(tx.among([GROUP.upstream_repo, GROUP.head_sha], keys)))
