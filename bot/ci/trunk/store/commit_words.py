"""Words of commits: kept with the lines of the grid, so that commits are found by title and author; and search rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.trunk.tables import ColumnRow, CommitRow, branch_commit, ci_column, trunk_branch
from bot.db.rows import select
from bot.word_index import rows as word_index
from bot.word_index.tables import title

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.word_index.tables import Title

KIND = "commit"
SCANNED = 20_000  # branches or jobs of a repository that are looked through, the newest ones
COMMIT, BRANCH, COLUMN, TITLE = branch_commit.c, trunk_branch.c, ci_column.c, title.c


async def keep_words(tx: Transaction, commits: Sequence[CommitRow | Mapping[str, Any]]) -> None:
    """Keep the words of some commits' titles and authors."""
    await word_index.put_titles(tx, [_title(one) for one in commits])


async def forget_words(context: Context) -> int:
    """Delete words of commits that are no longer kept; returns how many."""
    kept = sa.exists().where(COMMIT.sha == TITLE.ref, COMMIT.repository_id == TITLE.repository_id)
    async with context.store.transaction() as tx:
        return await word_index.forget_titles(tx, KIND, kept=kept)


async def commits_by_words(
    tx: Transaction, owners: Collection[int], text: str, *, limit: int
) -> list[CommitRow]:
    """Return commits in whose title or author each word of a text begins a word."""
    titles = await word_index.find_titles(tx, KIND, text, owners=owners, limit=limit)
    keys = [(row["ref"], row["repository_id"]) for row in titles]
    if not keys:
        return []
    these = tx.among([COMMIT.sha, COMMIT.repository_id], keys)
    return await tx.fetch(select(CommitRow, branch_commit).where(these).order_by(COMMIT.at.desc()))


async def commits_by_sha(
    tx: Transaction, owners: Collection[int], sha: str, *, limit: int
) -> list[CommitRow]:
    """Return the commits of branches whose SHA begins so."""
    query = select(CommitRow, branch_commit).where(
        COMMIT.sha >= sha, COMMIT.sha < sha + "g", COMMIT.repository_id.in_(sorted(owners))
    )
    return await tx.fetch(query.order_by(COMMIT.sha, COMMIT.branch).limit(limit))


async def commit_of_pull(tx: Transaction, repository_id: int, number: int) -> str | None:
    """Return the newest commit of a branch that came from a pull request, None where none is known."""
    query = sa.select(COMMIT.sha).where(COMMIT.repository_id == repository_id, COMMIT.pr_number == number)
    found: str | None = (await tx.run(query.order_by(COMMIT.at.desc(), COMMIT.sha).limit(1))).scalar()
    return found


async def branches_by_name(
    tx: Transaction, owners: Collection[int], text: str, *, limit: int
) -> list[tuple[int, str]]:
    """Return repository and name of branches that exist and whose name has a text in it, those pushed last first."""
    newest = sa.select(BRANCH.repository_id, BRANCH.branch, BRANCH.pushed_at).where(
        BRANCH.repository_id.in_(sorted(owners)), BRANCH.deleted_at <= BRANCH.pushed_at
    )
    some = newest.limit(SCANNED).subquery().c
    query = sa.select(some.repository_id, some.branch).where(some.branch.icontains(text, autoescape=True))
    found = await tx.run(query.order_by(some.pushed_at.desc(), some.branch).limit(limit))
    return [(row.repository_id, row.branch) for row in found]


async def jobs_by_name(
    tx: Transaction, owners: Collection[int], words: Sequence[str], *, limit: int
) -> list[ColumnRow]:
    """Return jobs in whose workflow or name each of these words stands, those that ran last first."""
    newest = sa.select(ci_column).where(COLUMN.repository_id.in_(sorted(owners)))
    some = newest.order_by(COLUMN.id.desc()).limit(SCANNED).subquery()
    name = some.c.workflow + sa.literal(" / ") + some.c.job
    query = select(ColumnRow, some).where(*(name.icontains(word, autoescape=True) for word in words))
    return await tx.fetch(query.order_by(some.c.seen.desc(), some.c.id).limit(limit))


def _title(commit: CommitRow | Mapping[str, Any]) -> Title:
    return {
        "kind": KIND,
        "repository_id": commit["repository_id"],
        "ref": commit["sha"],
        "text": " ".join(one for one in (commit["title"], commit["author"]) if one),
    }
