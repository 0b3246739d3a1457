"""Statements on the issues that pull requests close, and so enable on themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.disabled import closing
from bot.ci.disabled.tables import ci_disabling, ci_pull_closes
from bot.db.rows import select
from bot.ingest.rows import PullRow
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bot.ci.disabled.tables import DisablingRow
    from bot.db.transaction import Transaction

Issue = tuple[str, int]  # repository, case folded, and number
PULL, CLOSES = records["pull_request"].c, ci_pull_closes.c
UNREAD_MOST = 200  # pull requests whose commits are read after one look
_READ = sa.and_(
    CLOSES.repository_id == PULL.repository_id, CLOSES.number == PULL.number, CLOSES.head_sha == PULL.head_sha
)


async def find_pull(tx: Transaction, repository_id: int, number: int) -> PullRow | None:
    """Return a pull request."""
    query = select(PullRow, records["pull_request"])
    query = query.where(PULL.repository_id == repository_id, PULL.number == number)
    return await tx.fetch_first(query.limit(1))


async def issues_closed_by(tx: Transaction, repository_id: int, number: int) -> set[Issue]:
    """Return the issues that a pull request closes by its description and commits, as far as these were read."""
    pull = await find_pull(tx, repository_id, number)
    if pull is None:
        return set()
    query = sa.select(CLOSES.issues).where(CLOSES.repository_id == repository_id, CLOSES.number == number)
    by_commits = (await tx.run(query)).scalar() or []
    described = closing.closed_by_description(pull["body"] or "", pull["repo"])
    return described | {(repo, issue) for repo, issue in by_commits}


async def store_closed(
    tx: Transaction, repository_id: int, number: int, head_sha: str, issues: Iterable[Issue]
) -> None:
    """Store what the commits up to a head close."""
    new = {"head_sha": head_sha, "issues": sorted(issues)}
    insert = tx.insert(ci_pull_closes).values(repository_id=repository_id, number=number, **new)
    await tx.run(insert.on_conflict_do_update(index_elements=["repository_id", "number"], set_=new))


async def unread_pulls(
    tx: Transaction, repository_id: int, numbers: Collection[int] | None = None
) -> list[int]:
    """Return open pull requests (of some, or all) whose commits were not read up to the head, by number, newest first.

    There are none in a repository whose issues disable nothing.
    """
    disables = sa.exists().where(ci_disabling.c.repository_id == repository_id, ci_disabling.c.listed)
    query = sa.select(PULL.number).where(
        PULL.repository_id == repository_id,
        PULL.state == "open",
        PULL.deleted_at.is_(None),
        PULL.head_sha.is_not(None),
        disables,
        ~sa.exists().where(_READ),
    )
    if numbers is not None:
        query = query.where(PULL.number.in_(sorted(numbers)))
    return list((await tx.run(query.order_by(PULL.number.desc()).limit(UNREAD_MOST))).scalars())


async def forget_closed(tx: Transaction) -> int:
    """Delete what is known of pull requests that are no longer open."""
    is_open = sa.exists().where(
        PULL.repository_id == CLOSES.repository_id, PULL.number == CLOSES.number, PULL.state == "open"
    )
    return (await tx.run(sa.delete(ci_pull_closes).where(~is_open))).rowcount


def without_closed(
    issues: Iterable[DisablingRow], repo: str, closed: Collection[Issue]
) -> list[DisablingRow]:
    """Return the issues of a repository that are not among those closed."""
    return [one for one in issues if (repo.casefold(), one["number"]) not in closed]
