"""Days of branches that have to be counted again, because something that happened on their commits has changed."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.trunk.tables import branch_commit, ci_stale_day

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bot.db.transaction import Transaction

DAY = 86_400_000  # milliseconds
RUNNERS = ""  # in place of a branch: the runners of the whole repository
COMMIT, STALE = branch_commit.c, ci_stale_day.c


class Place(NamedTuple):
    """A day of a branch."""

    repository_id: int
    branch: str
    day: int


async def mark(tx: Transaction, places: Iterable[Place]) -> None:
    """Mark days as stale, under a new random mark each."""
    rows = [{**place._asdict(), "mark": secrets.randbits(62)} for place in sorted(set(places))]
    if rows:
        statement = tx.insert(ci_stale_day)
        keys = [column.name for column in ci_stale_day.primary_key.columns]
        again = {"mark": statement.excluded.mark}
        await tx.run(statement.on_conflict_do_update(index_elements=keys, set_=again), rows)


async def of_commits(
    tx: Transaction, shas: Collection[str], *, repository_id: int | None = None
) -> list[Place]:
    """Return the days of the branches that some commits are on."""
    query = sa.select(COMMIT.repository_id, COMMIT.branch, COMMIT.at).where(COMMIT.sha.in_(sorted(shas)))
    if repository_id is not None:
        query = query.where(COMMIT.repository_id == repository_id)
    return [Place(repository, branch, at // DAY) for repository, branch, at in await tx.run(query)]


async def newest(tx: Transaction, limit: int) -> dict[Place, int]:
    """Return stale days with their marks, the newest day first: that is what people look at."""
    query = sa.select(STALE.repository_id, STALE.branch, STALE.day, STALE.mark)
    query = query.order_by(STALE.day.desc(), STALE.repository_id, STALE.branch).limit(limit)
    return {Place(*place): mark for *place, mark in await tx.run(query)}


async def settle(tx: Transaction, place: Place, mark: int) -> bool:
    """Take a mark away; returns False when the day was marked again meanwhile."""
    same = (
        STALE.repository_id == place.repository_id,
        STALE.branch == place.branch,
        STALE.day == place.day,
        STALE.mark == mark,
    )
    return bool((await tx.run(sa.delete(ci_stale_day).where(*same))).rowcount)
