"""The daily sum of utilization: a day is counted from its jobs, a week from its days."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from bot.ci.utilization.sums import SPANS, DayGroup, Sums, first_day, groups_of
from bot.ci.utilization.tables import DayJob, DayRow, utilization_day, utilization_job
from bot.db.rows import select
from bot.ingest.prune import delete_rows
from bot.queue import sums
from bot.queue.sums import Place, Sum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bot.ci.utilization.tables import JobRow
    from bot.context import Context
    from bot.db.rows import Query
    from bot.db.transaction import Transaction
    from bot.queue.sums import Counted

DAY_SPAN, WEEK_SPAN = SPANS
SLICE = 500  # rows read at a time
DAY = 86_400_000  # milliseconds
PAUSE = 10.0  # seconds between two counts of a day
J, D = utilization_job.c, utilization_day.c
UTILIZATION = Sum(
    name="utilization",
    tables=(utilization_day,),
    group=("repository_id", "span"),
    count="bot.ci.utilization.store.count_days:count_span",
    after="bot.ci.utilization.store.count_days:request_week",
    pause=PAUSE,
)


def request_days(tx: Transaction, *rows: JobRow | None) -> None:
    """Have the days counted again that a job was or is on."""
    days = {(row["repository_id"], row["day"]) for row in rows if row is not None}
    sums.request(tx, UTILIZATION, (Place((repository, DAY_SPAN), day) for repository, day in sorted(days)))


async def request_week(tx: Transaction, place: Place) -> None:
    """Have the week of a day counted again, once the day was."""
    repository, span = place.group
    if span == DAY_SPAN:
        week = Place((repository, WEEK_SPAN), first_day(place.day, WEEK_SPAN))
        sums.request(tx, UTILIZATION, [week])


async def count_span(context: Context, place: Place) -> Counted:
    """Return the sums of the groups of a repository on a day, or in a week from a day on."""
    repository, span = place.group
    found: defaultdict[DayGroup, Sums] = defaultdict(Sums)
    add: Callable[[defaultdict[DayGroup, Sums], Sequence[Any]], None] = (
        _add_jobs if span == DAY_SPAN else _add_days
    )
    async with context.store.read() as tx:
        async for part in tx.slices(
            _jobs(repository, place.day) if span == DAY_SPAN else _days(repository, place.day), size=SLICE
        ):
            await asyncio.to_thread(add, found, part)
    return {utilization_day: [group.as_columns() | dict(found[group].as_row()) for group in sorted(found)]}


async def prune(context: Context) -> dict[str, int]:
    """Delete jobs and sums that are past the retention of records; the series go earlier, with the blobs."""
    first = context.clock.now() // DAY - context.settings.record_retention_days
    return {
        "measured jobs": await delete_rows(context, utilization_job, J.day < first),
        "sums of utilization": await delete_rows(context, utilization_day, D.day + D.span - 1 < first),
    }


def _jobs(repository: int, day: int) -> Query[DayJob]:
    """Return the query for the measured jobs of a day; of logs without a job it is not known what they are about."""
    measured = (J.status == "ok") & (J.job_id >= 0)
    return select(DayJob, utilization_job).where(J.repository_id == repository, J.day == day, measured)


def _days(repository: int, first: int) -> Query[DayRow]:
    """Return the query for the sums of a week's days."""
    in_week = D.day.between(first, first + WEEK_SPAN - 1)
    return select(DayRow, utilization_day).where(D.repository_id == repository, D.span == DAY_SPAN, in_week)


def _add_jobs(found: defaultdict[DayGroup, Sums], rows: Sequence[DayJob]) -> None:
    for row in rows:
        for group in groups_of(row):
            found[group].add_job(row)


def _add_days(found: defaultdict[DayGroup, Sums], rows: Sequence[DayRow]) -> None:
    for row in rows:
        group = DayGroup(row["kind"], row["group_key"], row["parent"], row["trusted"])
        found[group].add_row(row)
