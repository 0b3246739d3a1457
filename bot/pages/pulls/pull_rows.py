"""Statements on pull requests, and the words of their titles that the search finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import sqlalchemy as sa

from bot.db import word_index
from bot.db.rows import select
from bot.db.word_index import title
from bot.ingest.record_rows import PullRow
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.db.word_index import Title

PULL, HEAD, TITLE = records["pull_request"].c, records["pull_head"].c, title.c
PULLS = select(PullRow, records["pull_request"], body=sa.null())
TITLE_KIND = "pull"


async def pulls_by_number(
    tx: Transaction, owners: Collection[int], number: int, *, limit: int
) -> list[PullRow]:
    """Return the pull requests with this number in some repositories."""
    query = PULLS.where(PULL.number == number, PULL.repository_id.in_(sorted(owners)))
    return await tx.fetch(query.order_by(PULL.repository_id).limit(limit))


async def pulls_by_head(tx: Transaction, owners: Collection[int], sha: str, *, limit: int) -> list[PullRow]:
    """Return the pull requests with a present or past head that begins with `sha`; their rows name that head."""
    query = select(PullRow, records["pull_request"], body=sa.null(), head_sha=HEAD.head_sha).where(
        HEAD.head_sha >= sha,
        HEAD.head_sha < sha + "g",  # the first letter after the digits of a SHA
        HEAD.repository_id.in_(sorted(owners)),
        PULL.repository_id == HEAD.repository_id,
        PULL.number == HEAD.number,
    )
    return await tx.fetch(query.order_by(HEAD.head_sha, PULL.number.desc()).limit(limit))


async def pulls_of(tx: Transaction, keys: Sequence[tuple[int, int]]) -> list[PullRow]:
    """Return pull requests by repository and number, in this order."""
    if not keys:
        return []
    query = PULLS.where(
        PULL.number.in_(sorted({number for _, number in keys})),
        PULL.repository_id.in_(sorted({repository for repository, _ in keys})),
    )
    pulls = {(row["repository_id"], row["number"] or 0): row for row in await tx.fetch(query)}
    return [pulls[key] for key in keys if key in pulls]


async def page_of_pulls(
    tx: Transaction, repo: str, *, state: str, author: str, before: int | None, limit: int
) -> list[PullRow]:
    """Return the newest pull requests of a repository, or those before the one with this id."""
    query = PULLS.where(sa.func.lower(PULL.repo) == repo.lower(), PULL.number.is_not(None))
    if state == "open":
        query = query.where(PULL.state == "open")
    elif state == "merged":
        query = query.where(PULL.merged)
    elif state == "closed":
        query = query.where(PULL.state == "closed", sa.func.coalesce(PULL.merged, sa.false()).is_(False))
    if author:
        query = query.where(sa.func.lower(PULL.user_login) == author.lower())
    if before is not None:
        query = query.where(PULL.id < before)
    return await tx.fetch(query.order_by(PULL.id.desc()).limit(limit))


async def count_open(tx: Transaction, repo: str) -> int:
    """Return how many pull requests of a repository are open."""
    query = sa.select(sa.func.count()).where(PULL.state == "open", sa.func.lower(PULL.repo) == repo.lower())
    return int((await tx.run(query)).scalar_one())


async def has_pulls(tx: Transaction, repo: str) -> bool:
    """Whether a pull request of a repository is known."""
    query = sa.select(sa.exists().where(sa.func.lower(PULL.repo) == repo.lower()))
    return bool((await tx.run(query)).scalar())


def is_kept(kind: str) -> sa.ColumnElement[bool]:
    """Return the condition that the pull request of a title still exists."""
    # of other kinds it is no number
    number = sa.case((TITLE.kind == kind, sa.cast(TITLE.ref, sa.BigInteger)))
    return sa.exists().where(PULL.number == number, PULL.repository_id == TITLE.repository_id)


async def keep_words(tx: Transaction, changed: Changed) -> None:
    """Index the titles of changed pull requests, before their rows are committed."""
    pulls = cast("Sequence[PullRow]", changed.get("pull_request", ()))
    if pulls:
        await word_index.put_titles(tx, [_title_words(pull) for pull in pulls if pull["number"]])


async def forget_words(context: Context) -> dict[str, int]:
    """Delete words of pull requests that are no longer kept."""
    kept = is_kept(TITLE_KIND)
    async with context.store.transaction() as tx:
        return {"words of pull requests": await word_index.forget_titles(tx, TITLE_KIND, kept=kept)}


def _title_words(pull: PullRow) -> Title:
    texts = (pull["title"], pull["user_login"], pull["head_ref"])
    text = " ".join(part for part in texts if part)
    return {
        "kind": TITLE_KIND,
        "repository_id": pull["repository_id"],
        "ref": str(pull["number"]),
        "text": text,
    }
