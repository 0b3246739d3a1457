"""Commits that were pushed after a culprit, with what they say: reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.trunk.tables import branch_commit
from bot.ingest.tables import records

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.oot.culprits.tables import BisectRow

COMMIT, PUSH = branch_commit.c, records["push"].c
LATER_MOST = 2_000  # commits that are looked at
AT_ONCE = 500


class LaterCommit(NamedTuple):
    """A commit after a culprit."""

    sha: str
    title: str
    message: str  # empty where no push told of it


async def later_commits(tx: Transaction, search: BisectRow) -> list[LaterCommit]:
    """Return the commits of its branch after a culprit, the oldest first."""
    here = (COMMIT.repository_id == search["repository_id"], COMMIT.branch == search["branch"])
    at = sa.select(COMMIT.at).where(*here, COMMIT.sha == search["culprit_sha"]).scalar_subquery()
    query = sa.select(COMMIT.sha, COMMIT.title).where(
        *here, COMMIT.at >= at, COMMIT.sha != search["culprit_sha"]
    )
    found = (await tx.run(query.order_by(COMMIT.at, COMMIT.sha).limit(LATER_MOST))).all()
    messages: dict[str, str] = {}
    for start in range(0, len(found), AT_ONCE):
        shas = [sha for sha, _ in found[start : start + AT_ONCE]]
        told = sa.select(PUSH.after, PUSH.head_commit_message).where(
            PUSH.repository_id == search["repository_id"], PUSH.after.in_(shas)
        )
        messages |= {sha: message or "" for sha, message in await tx.run(told)}
    return [LaterCommit(sha, title, messages.get(sha, "")) for sha, title in found]
