"""Statements about contributions: the pull requests of outside people, and their days."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.extras.contributions.outsiders import MEMBERS, MERGED, OPEN
from bot.ci.extras.contributions.tables import (
    ContributionDayRow,
    ContributionRow,
    contribution_day,
    contribution_pull,
)
from bot.db.rows import select
from bot.ingest.prune import delete_rows
from bot.ingest.rows import PullRow
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.context import Context
    from bot.db.transaction import Transaction

PULL, REVIEW = records["pull_request"], records["pull_review"].c
C, D = contribution_pull.c, contribution_day.c
COLUMNS = ("login", "state", "created_at", "day", "merged_at", "reviewed_at")
PULLS_MOST = 10_000  # of a day


async def find_pull(tx: Transaction, repository_id: int, number: int) -> PullRow | None:
    """Return a pull request."""
    query = select(PullRow, PULL).where(PULL.c.number == number, PULL.c.repository_id == repository_id)
    return await tx.fetch_first(query)


async def first_review(tx: Transaction, pull: PullRow, api_url: str) -> int | None:
    """Return when a member first reviewed a pull request of another author."""
    query = sa.select(sa.func.min(REVIEW.submitted_at)).where(
        REVIEW.repository_id == pull["repository_id"],
        REVIEW.pull_request_url == f"{api_url}/repos/{pull['repo']}/pulls/{pull['number']}",
        REVIEW.author_association.in_(sorted(MEMBERS)),
        REVIEW.user_login != pull["user_login"],
    )
    found: int | None = (await tx.run(query)).scalar()
    return found


async def find_contribution(tx: Transaction, repository_id: int, number: int) -> ContributionRow | None:
    """Return what is known of a contribution."""
    query = select(ContributionRow, contribution_pull)
    return await tx.fetch_first(query.where(C.repository_id == repository_id, C.number == number))


async def put_contribution(tx: Transaction, row: ContributionRow) -> None:
    """Store a contribution."""
    await tx.upsert(contribution_pull, [row], replaced=COLUMNS)
    tx.note_changed("contribution_pull", [row])


async def delete_contribution(tx: Transaction, repository_id: int, number: int) -> None:
    """Delete what is no contribution any more."""
    await tx.run(sa.delete(contribution_pull).where(C.repository_id == repository_id, C.number == number))
    tx.note_changed("contribution_pull", [{"repository_id": repository_id, "number": number}])


async def first_days(tx: Transaction, repository_id: int, login: str) -> list[int]:
    """Return the first two days on which pull requests of an author were merged: on one of these they are new."""
    query = sa.select(C.day).where(C.repository_id == repository_id, C.login == login, C.day.is_not(None))
    return list((await tx.run(query.distinct().order_by(C.day).limit(2))).scalars())


async def merged_on(tx: Transaction, repository_id: int, day: int) -> list[ContributionRow]:
    """Return what was merged on a day."""
    query = select(ContributionRow, contribution_pull).where(
        C.repository_id == repository_id, C.day == day, C.state == MERGED
    )
    return await tx.fetch(query.order_by(C.number).limit(PULLS_MOST))


async def known_before(tx: Transaction, repository_id: int, logins: Collection[str], day: int) -> set[str]:
    """Return those of some people of whom something was merged before a day."""
    query = sa.select(C.login).where(
        C.repository_id == repository_id, C.login.in_(sorted(logins)), C.day < day
    )
    return set((await tx.run(query.distinct())).scalars())


async def days(tx: Transaction, owners: Collection[int], *, first: int) -> list[ContributionDayRow]:
    """Return the days from one on."""
    query = select(ContributionDayRow, contribution_day)
    return await tx.fetch(query.where(D.repository_id.in_(sorted(owners)), D.day >= first).order_by(D.day))


async def waiting(
    tx: Transaction, owners: Collection[int], *, before: int, limit: int
) -> tuple[int, list[dict[str, Any]]]:
    """Return how many open pull requests of outside people no member has reviewed, and the oldest of them."""
    these = (
        C.repository_id.in_(sorted(owners)),
        C.state == OPEN,
        C.created_at < before,
        C.reviewed_at.is_(None),
    )
    counted = sa.select(sa.func.count()).select_from(contribution_pull).where(*these)
    same = (PULL.c.repository_id == C.repository_id) & (PULL.c.number == C.number)
    oldest = sa.select(C.number, C.created_at, PULL.c.title, PULL.c.html_url).select_from(
        contribution_pull.join(PULL, same)
    )
    found = await tx.run(oldest.where(*these).order_by(C.created_at, C.number).limit(limit))
    return int((await tx.run(counted)).scalar_one()), found.mappings()


async def delete_days(context: Context, *, first: int) -> dict[str, int]:
    """Delete days past the retention of records; who contributed before is kept."""
    return {"days of contributions": await delete_rows(context, contribution_day, D.day < first)}
