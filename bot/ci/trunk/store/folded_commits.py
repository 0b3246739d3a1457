"""Commits that came with the push of another one: no lines of the grid, but suspects as good as any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk.store import branches
from bot.ci.trunk.tables import FoldedCommitRow, branch_commit, folded_commit
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.db.transaction import Transaction

AT_ONCE = 200  # commits of one question
Came = tuple[str, FoldedCommitRow | None]  # a SHA, and what is known of its commit
COMMIT, FOLDED, PUSH = branch_commit.c, folded_commit.c, records["push"].c

_PUSHES = Statement(
    sa.select(PUSH.after, PUSH.commits).where(
        PUSH.after.in_(sa.bindparam("heads", expanding=True)),
        PUSH.repository_id == sa.bindparam("repository"),
        PUSH.ref == sa.bindparam("ref"),
    )
)
_NAMED = RowStatement(
    select(FoldedCommitRow, folded_commit).where(
        FOLDED.repository_id == sa.bindparam("repository"),
        FOLDED.branch == sa.bindparam("branch"),
        FOLDED.sha.in_(sa.bindparam("shas", expanding=True)),
    )
)


async def commits_of_heads(
    tx: Transaction, repository_id: int, branch: str, heads: Sequence[str], *, most: int
) -> Mapping[str, list[Came]]:
    """Return the commits that came with some heads of a branch, newest first, at most `most` of each.

    Each is its SHA, and its row once GitHub has listed it.
    """
    came: dict[str, list[str]] = {}
    values = {"repository": repository_id, "ref": f"{branches.HEADS}{branch}"}
    for start in range(0, len(heads), AT_ONCE):
        found = await tx.run(_PUSHES, {**values, "heads": heads[start : start + AT_ONCE]})
        for head, commits in found.all():
            shas = [sha for sha in reversed(commits or ()) if sha != head]
            came[head] = max(came.get(head, []), shas, key=lambda each: (len(each), each))
    kept = {head: shas[:most] for head, shas in came.items()}
    named = await _named(tx, repository_id, branch, sorted({sha for shas in kept.values() for sha in shas}))
    return {head: [(sha, named.get(sha)) for sha in shas] for head, shas in kept.items()}


async def add_commits(tx: Transaction, rows: Collection[FoldedCommitRow]) -> None:
    """Store commits, as rows of the table; those that are known stay as they are."""
    if rows:
        await tx.run(tx.insert(folded_commit).on_conflict_do_nothing(), [dict(row) for row in rows])


async def fold_lines(tx: Transaction, repository_id: int, branch: str, shas: Collection[str]) -> None:
    """Take away the lines of commits that were listed before the push that they came with was heard of."""
    here = sa.and_(
        COMMIT.repository_id == repository_id,
        COMMIT.branch == branch,
        COMMIT.sha.in_(sorted(shas)),
        COMMIT.listed,
    )
    listed = await tx.fetch(select(FoldedCommitRow, branch_commit).where(here))
    if listed:
        await add_commits(tx, listed)
        await tx.run(sa.delete(branch_commit).where(here))


async def _named(
    tx: Transaction, repository_id: int, branch: str, shas: Sequence[str]
) -> dict[str, FoldedCommitRow]:
    named: dict[str, FoldedCommitRow] = {}
    values = {"repository": repository_id, "branch": branch}
    for start in range(0, len(shas), AT_ONCE):
        found = await tx.fetch(_NAMED, {**values, "shas": shas[start : start + AT_ONCE]})
        named |= {row["sha"]: row for row in found}
    return named
