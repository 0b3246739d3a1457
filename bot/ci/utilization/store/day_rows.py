"""Reading sums by day and week."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk.tables import ci_runner_day
from bot.ci.utilization.sums import SPANS
from bot.ci.utilization.tables import PeriodRow, utilization_day
from bot.db.rows import select

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.ci.utilization.periods import Piece
    from bot.ci.utilization.report import Group
    from bot.db.transaction import Transaction

D, R = utilization_day.c, ci_runner_day.c
ROWS_MOST = 50_000  # of one report


async def period_rows(
    tx: Transaction,
    repository_ids: Collection[int],
    kind: str,
    chosen: Collection[Piece],
    *,
    trusted: bool,
    group: Group | None = None,
    parent: str | None = None,
) -> list[PeriodRow]:
    """Return the sums of some weeks and days: of all groups, of those with a parent, or of one."""
    days = {span: sorted(one.day for one in chosen if one.span == span) for span in SPANS}
    anywhere = [sa.and_(D.span == span, D.day.in_(each)) for span, each in days.items() if each]
    query = select(PeriodRow, utilization_day).where(
        D.repository_id.in_(sorted(repository_ids)), D.kind == kind, sa.or_(*anywhere), D.trusted == trusted
    )
    if group is not None:
        query = query.where(D.group_key == group.key, D.parent == group.parent)
    elif parent is not None:
        query = query.where(D.parent == parent)
    return await tx.fetch(query.limit(ROWS_MOST))


async def measured_jobs(
    tx: Transaction, repository_ids: Collection[int], first: int, last: int
) -> dict[bool, int]:
    """Return how many jobs were measured in some days, of trusted runs and of others."""
    query = (
        sa.select(D.trusted, sa.func.sum(D.jobs))
        .where(
            D.repository_id.in_(sorted(repository_ids)),
            D.kind == "workflow",
            D.span == 1,
            D.day.between(first, last),
        )
        .group_by(D.trusted)
    )
    return {bool(trusted): int(jobs) for trusted, jobs in await tx.run(query)}


async def created_jobs(
    tx: Transaction, repository_ids: Collection[int], first: int, last: int
) -> dict[str, int]:
    """Return how many jobs there were on some days, by runner label, measured or not."""
    query = (
        sa.select(R.label, sa.func.sum(R.jobs))
        .where(R.repository_id.in_(sorted(repository_ids)), R.day.between(first, last))
        .group_by(R.label)
    )
    return {label: int(jobs) for label, jobs in await tx.run(query)}
