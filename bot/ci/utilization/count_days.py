"""The daily sum of utilization: a day is counted from its jobs, a week from its days."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.utilization.sums import SPANS, Kind, Sums, first_day, kinds_of
from bot.ci.utilization.tables import utilization_day, utilization_job
from bot.queue import sums
from bot.queue.sums import Place, Sum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bot.ci.utilization.rows import JobRow
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.sums import Counted

DAY_SPAN, WEEK_SPAN = SPANS
SLICE = 500  # rows read at a time
REST = 10.0  # seconds between two counts of a day
J, D = utilization_job.c, utilization_day.c
UTILIZATION = Sum(
    name="utilization",
    tables=(utilization_day,),
    group=("repository_id", "span"),
    count="bot.ci.utilization.count_days:count",
    after="bot.ci.utilization.count_days:request_week",
    rest=REST,
)
JOBS = sa.select(
    J.base_name, J.workflow_name, J.runner_label, J.trusted, J.records, J.histograms, J.totals, J.idle_gpu_s, J.gpu_s,
    J.machine_s,
)  # fmt: skip


def request(tx: Transaction, *rows: JobRow | None) -> None:
    """Have the days counted again that a job was or is on."""
    days = {(row["repository_id"], row["day"]) for row in rows if row is not None}
    sums.request(tx, UTILIZATION, (Place((repository, DAY_SPAN), day) for repository, day in sorted(days)))


async def request_week(tx: Transaction, place: Place) -> None:
    """Have the week of a day counted again, once the day was."""
    repository, span = place.group
    if span == DAY_SPAN:
        week = Place((repository, WEEK_SPAN), first_day(place.day, WEEK_SPAN))
        sums.request(tx, UTILIZATION, [week])


async def count(context: Context, place: Place) -> Counted:
    """Return the sums of the groups of a repository on a day, or in a week from a day on."""
    repository, span = place.group
    found: dict[Kind, Sums] = {}
    add: Callable[[dict[Kind, Sums], Sequence[Any]], None] = _add_jobs if span == DAY_SPAN else _add_days
    async with context.store.read() as tx:
        query = _jobs(repository, place.day) if span == DAY_SPAN else _days(repository, place.day)
        async for part in tx.slices(query, size=SLICE):
            await asyncio.to_thread(add, found, part)
    return {
        utilization_day: [kind._asdict() | found[kind].as_row() for kind in sorted(found) if found[kind].jobs]
    }


def _jobs(repository: int, day: int) -> sa.Select[Any]:
    """Return the query for the measured jobs of a day; of logs without a job it is not known what they are about."""
    return JOBS.where(J.repository_id == repository, J.day == day, J.status == "ok", J.job_id >= 0)


def _days(repository: int, first: int) -> sa.Select[Any]:
    """Return the query for the sums of a week's days."""
    in_week = D.day.between(first, first + WEEK_SPAN - 1)
    return sa.select(utilization_day).where(D.repository_id == repository, D.span == DAY_SPAN, in_week)


def _add_jobs(found: dict[Kind, Sums], rows: Sequence[JobRow]) -> None:
    for row in rows:
        _add(found, kinds_of(row), Sums.of_job(row))


def _add_days(found: dict[Kind, Sums], rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        _add(found, [Kind(*(row[name] for name in Kind._fields))], Sums.of_row(row))


def _add(found: dict[Kind, Sums], kinds: Iterable[Kind], added: Sums) -> None:
    for kind in kinds:
        found[kind] = found[kind] + added if kind in found else added
