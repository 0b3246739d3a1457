"""The daily sums of utilization: what jobs add to them, a day counted from its jobs, a week from its days."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from bot.db.rows import select
from bot.evidence.usage.parse.summary import (
    METRIC_COLUMNS,
    METRICS,
    decode_bins,
    encode_bins,
    unpack_histograms,
)
from bot.evidence.usage.tables import DayJob, DayRow, PeriodRow, utilization_day, utilization_job
from bot.ingest.retention import delete_rows
from bot.jobs.tables import ci_runner_day
from bot.queue import sums
from bot.queue.sums import Sum, SumPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from bot.context import Context
    from bot.db.rows import TypedSelect
    from bot.db.transaction import Transaction
    from bot.evidence.usage.parse.summary import Histogram
    from bot.evidence.usage.report import JobGroup, SumPiece
    from bot.evidence.usage.tables import DaySums, JobRow
    from bot.queue.sums import CountedSum

SPANS = (1, 7)  # days
MONDAY = 4  # days from the Thursday that 1970 began with to a Monday
TOTALS = tuple(f"{name}_sum" for name in METRIC_COLUMNS.values())  # columns, as METRICS
COUNTS = ("jobs", "records", "idle_gpu_s", "gpu_s")
DAY_SPAN, WEEK_SPAN = SPANS
SLICE = 500  # rows read at a time
DAY = 86_400_000  # milliseconds
PAUSE = 10.0  # seconds between two counts of a day
JOB, DAY_SUMS, RUNNER_DAY = utilization_job.c, utilization_day.c, ci_runner_day.c
UTILIZATION = Sum(
    name="utilization",
    tables=(utilization_day,),
    group=("repository_id", "span"),
    count="bot.evidence.usage.daily_sums:count_span",
    after="bot.evidence.usage.daily_sums:request_week",
    pause=PAUSE,
)
ROWS_MOST = 50_000  # of one report


class SumGroup(NamedTuple):
    """Which sums of a day a job counts in: a kind, such as `runner`, and a group of it."""

    kind: str
    group: str
    parent: str
    of_trusted: bool

    def as_columns(self) -> dict[str, str | bool]:
        """Return the columns of a row of sums."""
        return dict(zip(("kind", "group_key", "parent", "trusted"), self, strict=True))


class UsageSums:
    """Sums over jobs, while they are added up."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTS, 0)
        self.seconds: dict[str, tuple[int, int]] = {}  # label -> of machines, of those with accelerators
        self._bins = 0  # packed
        self._totals = [0] * len(METRICS)

    def add_job(self, row: DayJob) -> None:
        """Add a job."""
        machine = row["machine_s"]
        counts = {
            "jobs": 1, "records": row["records"], "idle_gpu_s": round(row["idle_gpu_s"]),
            "gpu_s": round(row["gpu_s"]),
        }  # fmt: skip
        seconds = {row["runner_label"]: (machine, machine if row["gpu_s"] else 0)}
        self._add(counts, row["histograms"], row["totals"], seconds)

    def add_row(self, row: DaySums) -> None:
        """Add stored sums."""
        columns: Mapping[str, int] = {name: row[name] for name in (*COUNTS, *TOTALS)}  # type: ignore[literal-required]
        self._add(columns, row["histograms"], [columns[name] for name in TOTALS], row["seconds"])

    def as_row(self) -> DaySums:
        """Return the columns."""
        cpu, mem, gpu, gpu_bw, gpu_alloc = self._totals
        return {
            "jobs": self.counts["jobs"],
            "records": self.counts["records"],
            "histograms": encode_bins(self._bins, len(METRICS)),
            "cpu_sum": cpu,
            "mem_sum": mem,
            "gpu_sum": gpu,
            "gpu_bw_sum": gpu_bw,
            "gpu_alloc_sum": gpu_alloc,
            "idle_gpu_s": self.counts["idle_gpu_s"],
            "gpu_s": self.counts["gpu_s"],
            "seconds": self.seconds,
        }

    def histograms(self) -> dict[str, Histogram]:
        """Return the histogram of every metric."""
        return dict(zip(METRICS, unpack_histograms(self._bins, self._totals), strict=True))

    def _add(
        self,
        counts: Mapping[str, int],
        histograms: bytes,
        totals: Sequence[int],
        seconds: Mapping[str, Sequence[int]],
    ) -> None:
        for name in COUNTS:
            self.counts[name] += counts[name]
        self._bins += decode_bins(histograms, len(METRICS))
        self._totals = [before + more for before, more in zip(self._totals, totals, strict=True)]
        for label, (machine, with_gpu) in seconds.items():
            known = self.seconds.get(label, (0, 0))
            self.seconds[label] = known[0] + machine, known[1] + with_gpu


def groups_of(row: DayJob) -> list[SumGroup]:
    """Return the sums that a job counts in."""
    groups = (
        ("job", row["base_name"], row["workflow_name"]),
        ("workflow", row["workflow_name"], ""),
        ("runner", row["runner_label"], ""),
    )
    return [SumGroup(kind, group, parent, row["trusted"]) for kind, group, parent in groups]


def first_day(day: int, span: int) -> int:
    """Return the first day of the span that a day is in."""
    return day if span == 1 else day - (day - MONDAY) % 7


def request_days(tx: Transaction, *rows: JobRow | None) -> None:
    """Request a new count of the days that a job was or is on."""
    days = {(row["repository_id"], row["day"]) for row in rows if row is not None}
    sums.request(tx, UTILIZATION, (SumPlace((repository, DAY_SPAN), day) for repository, day in sorted(days)))


async def request_week(tx: Transaction, place: SumPlace) -> None:
    """Request a new count of a day's week, once the day was counted."""
    repository, span = place.group
    if span == DAY_SPAN:
        week = SumPlace((repository, WEEK_SPAN), first_day(place.day, WEEK_SPAN))
        sums.request(tx, UTILIZATION, [week])


async def count_span(context: Context, place: SumPlace) -> CountedSum:
    """Count the sums of a repository's groups on a day, or in the week that begins with a day."""
    repository, span = place.group
    totals: defaultdict[SumGroup, UsageSums] = defaultdict(UsageSums)
    add: Callable[[defaultdict[SumGroup, UsageSums], Sequence[Any]], None] = (
        _add_jobs if span == DAY_SPAN else _add_days
    )
    async with context.store.read() as tx:
        async for part in tx.slices(
            _jobs_of_day(repository, place.day) if span == DAY_SPAN else _days_of_week(repository, place.day),
            size=SLICE,
        ):
            await asyncio.to_thread(add, totals, part)
    return {utilization_day: [group.as_columns() | dict(totals[group].as_row()) for group in sorted(totals)]}


async def prune_usage(context: Context) -> dict[str, int]:
    """Delete jobs and sums that are past the retention of records; the series go earlier, with the blobs."""
    first = context.clock.now() // DAY - context.settings.record_retention_days
    return {
        "measured jobs": await delete_rows(context, utilization_job, JOB.day < first),
        "sums of utilization": await delete_rows(
            context, utilization_day, DAY_SUMS.day + DAY_SUMS.span - 1 < first
        ),
    }


def _jobs_of_day(repository: int, day: int) -> TypedSelect[DayJob]:
    """Return the query for the measured jobs of a day, without logs of unknown jobs."""
    measured = (JOB.status == "ok") & (JOB.job_id >= 0)
    return select(DayJob, utilization_job).where(JOB.repository_id == repository, JOB.day == day, measured)


def _days_of_week(repository: int, first: int) -> TypedSelect[DayRow]:
    """Return the query for the sums of a week's days."""
    in_week = DAY_SUMS.day.between(first, first + WEEK_SPAN - 1)
    return select(DayRow, utilization_day).where(
        DAY_SUMS.repository_id == repository, DAY_SUMS.span == DAY_SPAN, in_week
    )


def _add_jobs(totals: defaultdict[SumGroup, UsageSums], rows: Sequence[DayJob]) -> None:
    for row in rows:
        for group in groups_of(row):
            totals[group].add_job(row)


def _add_days(totals: defaultdict[SumGroup, UsageSums], rows: Sequence[DayRow]) -> None:
    for row in rows:
        group = SumGroup(row["kind"], row["group_key"], row["parent"], row["trusted"])
        totals[group].add_row(row)


async def period_rows(
    tx: Transaction,
    repository_ids: Collection[int],
    kind: str,
    chosen: Collection[SumPiece],
    *,
    trusted: bool,
    group: JobGroup | None = None,
    parent: str | None = None,
) -> list[PeriodRow]:
    """Return the sums of weeks and days: of all groups, of those with a parent, or of one."""
    days = {span: sorted(piece.day for piece in chosen if piece.span == span) for span in SPANS}
    anywhere = [sa.and_(DAY_SUMS.span == span, DAY_SUMS.day.in_(each)) for span, each in days.items() if each]
    query = select(PeriodRow, utilization_day).where(
        DAY_SUMS.repository_id.in_(sorted(repository_ids)),
        DAY_SUMS.kind == kind,
        sa.or_(*anywhere),
        DAY_SUMS.trusted == trusted,
    )
    if group is not None:
        query = query.where(DAY_SUMS.group_key == group.key, DAY_SUMS.parent == group.parent)
    elif parent is not None:
        query = query.where(DAY_SUMS.parent == parent)
    return await tx.fetch(query.limit(ROWS_MOST))


async def measured_jobs(
    tx: Transaction, repository_ids: Collection[int], first: int, last: int
) -> dict[bool, int]:
    """Count the measured jobs of some days, of trusted runs and of others."""
    query = (
        sa.select(DAY_SUMS.trusted, sa.func.sum(DAY_SUMS.jobs))
        .where(
            DAY_SUMS.repository_id.in_(sorted(repository_ids)),
            DAY_SUMS.kind == "workflow",
            DAY_SUMS.span == 1,
            DAY_SUMS.day.between(first, last),
        )
        .group_by(DAY_SUMS.trusted)
    )
    return {bool(trusted): int(jobs) for trusted, jobs in await tx.run(query)}


async def created_jobs(
    tx: Transaction, repository_ids: Collection[int], first: int, last: int
) -> dict[str, int]:
    """Count all jobs of some days by runner label, measured or not."""
    query = (
        sa.select(RUNNER_DAY.label, sa.func.sum(RUNNER_DAY.jobs))
        .where(RUNNER_DAY.repository_id.in_(sorted(repository_ids)), RUNNER_DAY.day.between(first, last))
        .group_by(RUNNER_DAY.label)
    )
    return {label: int(jobs) for label, jobs in await tx.run(query)}
