"""Commits that GitHub lists of a branch: stored as lines of the grid where they are in no push."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk.store import branches, changed_days, commit_words, folded_commits, pushed_commits
from bot.ci.trunk.tables import branch_commit
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.tables import BranchKey, CommitRow, ListedCommit
    from bot.db.transaction import Transaction

PULLS_NAMED = 100  # newest commits whose pull request is looked up
PUSHES = 500  # newest ones looked at for commits that came with another
COMMIT, PUSH, PULL = branch_commit.c, records["push"].c, records["pull_request"].c


async def store_commits(
    tx: Transaction,
    repository_id: int,
    branch: str,
    found: Sequence[ListedCommit],
    *,
    newest: bool,
    since: int,
) -> int:
    """Store commits that are in no push; returns how many. With `newest` those missing in the list are gone.

    A commit that came with the push of another is none of the branch's lines. One from before `since` would be
    deleted again at once.
    """
    if not found:
        return 0
    key: BranchKey = {"repository_id": repository_id, "branch": branch}
    shas = {one["sha"] for one in found}
    folded = await _folded(tx, repository_id, branch)
    lines = [one for one in found if one["sha"] not in folded]
    known = await _known(tx, repository_id, branch, shas)
    made = [
        _row(key, one, parent["sha"] if parent else None)
        for one, parent in zip(lines, [*lines[1:], None], strict=True)
        if one["sha"] not in known and one["at"] >= since
    ]
    if made:
        await tx.run(tx.insert(branch_commit).on_conflict_do_nothing(), made)
        await commit_words.keep_words(tx, made)
    came = [one for one in found if one["sha"] in folded and one["at"] >= since]
    await folded_commits.add_commits(tx, [{**key, **one} for one in came])
    here = (COMMIT.repository_id == repository_id, COMMIT.branch == branch)
    await tx.run(sa.update(branch_commit).where(*here, COMMIT.sha.in_(sorted(shas))).values(gone=False))
    if newest:
        later = COMMIT.at > min(one["at"] for one in found)
        await tx.run(
            sa.update(branch_commit).where(*here, later, COMMIT.sha.not_in(sorted(shas))).values(gone=True)
        )
    changed_days.request(tx, repository_id, [(branch, row["at"]) for row in made])
    return len(made)


async def name_pulls(tx: Transaction, repository_id: int, branch: str) -> None:
    """Write which pull requests the newest commits came from whose titles do not tell."""
    here = (COMMIT.repository_id == repository_id, COMMIT.branch == branch)
    newest = (
        sa.select(COMMIT.sha)
        .where(*here, COMMIT.pr_number.is_(None))
        .order_by(COMMIT.at.desc())
        .limit(PULLS_NAMED)
    )
    shas = list((await tx.run(newest)).scalars())
    merged = (PULL.repository_id == repository_id, PULL.merged, PULL.merge_commit_sha.in_(shas))
    query = sa.select(PULL.merge_commit_sha, PULL.number).where(*merged).order_by(PULL.number.desc())
    for sha, number in (await tx.run(query)).all() if shas else ():  # of several the first one is kept
        await tx.run(sa.update(branch_commit).where(*here, COMMIT.sha == sha).values(pr_number=number))


def _row(key: BranchKey, one: ListedCommit, parent: str | None) -> CommitRow:
    return {
        **key,
        "sha": one["sha"],
        "parent": parent,
        "replaces": None,
        "at": one["at"],
        "title": one["title"],
        "author": one["author"],
        "pr_number": pushed_commits.pull_number(one["title"]),
        "folded": 0,
        "gone": False,
        "listed": True,
    }


async def _known(tx: Transaction, repository_id: int, branch: str, shas: set[str]) -> set[str]:
    query = sa.select(COMMIT.sha).where(
        COMMIT.repository_id == repository_id, COMMIT.branch == branch, COMMIT.sha.in_(sorted(shas))
    )
    return set((await tx.run(query)).scalars())


async def _folded(tx: Transaction, repository_id: int, branch: str) -> set[str]:
    """Return the commits that came with the push of another one."""
    query = sa.select(PUSH.commits, PUSH.after).where(
        PUSH.repository_id == repository_id, PUSH.ref == f"{branches.HEADS}{branch}"
    )
    pushes = (await tx.run(query.order_by(PUSH.received_at.desc()).limit(PUSHES))).all()
    heads = {after for _, after in pushes}
    return {sha for commits, _ in pushes for sha in commits or () if sha not in heads}
