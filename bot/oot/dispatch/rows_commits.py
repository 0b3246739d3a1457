"""Rows of what is known of commits: the files they change, their trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.oot.dispatch.tables import ChangedFilesRow, TreeRow, oot_changed_files, oot_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction

SAME_MOST = 20  # newest commits with one tree that are looked at


async def get_changed_files(
    tx: Transaction, repo: str, number: int, head_sha: str, *, base_ref: str
) -> ChangedFilesRow | None:
    """Return the files a pull request changes, as GitHub listed them for a head and base; None if not yet asked."""
    files = oot_changed_files.c
    about = (files.upstream_repo == repo, files.pr_number == number, files.head_sha == head_sha)
    query = select(ChangedFilesRow, oot_changed_files).where(*about, files.base_ref == base_ref)
    return await tx.fetch_first(query)


async def store_changed_files(
    tx: Transaction,
    repo: str,
    number: int,
    head_sha: str,
    paths: Sequence[str],
    *,
    base_ref: str,
    complete: bool | None,
) -> None:
    """Store the files GitHub listed for a head and base, in place of those of other heads."""
    files = oot_changed_files
    await tx.run(sa.delete(files).where(files.c.upstream_repo == repo, files.c.pr_number == number))
    values = {
        "upstream_repo": repo, "pr_number": number, "head_sha": head_sha, "base_ref": base_ref, "paths": list(paths),
        "complete": complete, "asked_at": tx.now,
    }  # fmt: skip
    await tx.run(tx.insert(files).values(values).on_conflict_do_nothing())


async def get_tree(tx: Transaction, repo: str, head_sha: str) -> str | None:
    """Return the tree of a commit; None if not yet asked."""
    tree = oot_tree.c
    query = select(TreeRow, oot_tree).where(tree.upstream_repo == repo, tree.head_sha == head_sha)
    row = await tx.fetch_first(query)
    return row["tree_sha"] if row else None


async def store_tree(tx: Transaction, repo: str, head_sha: str, tree_sha: str) -> None:
    """Store the tree of a commit, which never changes."""
    values = {"upstream_repo": repo, "head_sha": head_sha, "tree_sha": tree_sha, "asked_at": tx.now}
    await tx.run(tx.insert(oot_tree).values(values).on_conflict_do_nothing())


async def commits_of_tree(tx: Transaction, repo: str, tree_sha: str, *, but: str) -> list[str]:
    """Return other commits that were dispatched and have a tree, the newest first."""
    tree = oot_tree.c
    query = sa.select(tree.head_sha).where(
        tree.upstream_repo == repo, tree.tree_sha == tree_sha, tree.head_sha != but
    )
    found = await tx.run(query.order_by(tree.asked_at.desc(), tree.head_sha).limit(SAME_MOST))
    return list(found.scalars())
