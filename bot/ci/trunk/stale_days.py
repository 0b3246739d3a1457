"""Days of branches that have to be counted again, because something that happened on their commits has changed."""

from __future__ import annotations

import functools
import secrets
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.trunk.tables import branch_commit, ci_stale_day
from bot.db.columns import Big
from bot.db.statements import Statement
from bot.db.transaction import insert_into

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
        await tx.upsert(ci_stale_day, rows, replaced=("mark",))


async def mark_commits(
    tx: Transaction, shas: Collection[str], runners: Collection[tuple[int, int]] = ()
) -> None:
    """Mark the days of the branches that some commits are on, and those of the runners of some repositories."""
    if shas:
        await tx.run(_of_commits(sqlite=tx.sqlite), {"shas": sorted(shas), "new": secrets.randbits(62)})
    await mark(tx, [Place(repository, RUNNERS, day) for repository, day in runners])


@functools.cache
def _of_commits(*, sqlite: bool) -> Statement:
    """Return the statement that marks the days of commits, put together once, since it runs with every batch."""
    place = (COMMIT.repository_id, COMMIT.branch, (COMMIT.at // DAY).label("day"))
    of_shas = COMMIT.sha.in_(sa.bindparam("shas", expanding=True))
    days = sa.select(*place, sa.bindparam("new", type_=Big)).where(of_shas).distinct().order_by(*place)
    names = [column.name for column in ci_stale_day.columns]
    statement = insert_into(ci_stale_day, sqlite=sqlite).from_select(names, days)
    keys = [column.name for column in ci_stale_day.primary_key.columns]
    return Statement(
        statement.on_conflict_do_update(index_elements=keys, set_={"mark": statement.excluded.mark})
    )


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
