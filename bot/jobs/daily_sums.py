"""Sums of a branch and of a repository's runners by day: how they are counted from a grid, stored and read."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import as_rows, select
from bot.db.statements import Statement
from bot.ingest.tables import records
from bot.jobs import branch_reads, column_changes, commit_cells, grid, job_names, rows
from bot.jobs.cells import CONCLUSIONS, STATES
from bot.jobs.grid_columns import STATUS
from bot.jobs.rows import GOES_ON, ORIGINAL
from bot.jobs.settings import TrunkSettings
from bot.jobs.tables import (
    ColumnCells,
    ColumnEvent,
    CommitKey,
    CommitRow,
    Day,
    FailureKind,
    JobAttempt,
    JobColumn,
    JobHold,
    JobRunner,
    JobState,
    JobTimes,
    LineRow,
    LineSums,
    RunnerCounts,
    RunnerDayRow,
    branch_commit,
    ci_cell,
    ci_column,
    ci_day,
    ci_line,
    ci_runner_day,
    trunk_event,
)
from bot.oot.statistics import histogram
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.jobs.cells import Cell
    from bot.jobs.grid import Grid, GridLine
    from bot.jobs.runner_queues import StartedJob
    from bot.jobs.settings import NamedPatterns
    from bot.queue.sums import CountedSum, SumPlace

NOTHING = " "  # a commit without a cell
CANCELLED = CONCLUSIONS.index("cancelled")
NEVER_RAN = (CANCELLED, CONCLUSIONS.index("skipped"))  # where they took no time: GitHub gives them one
FAILED = frozenset(
    CONCLUSIONS.index(word) for word in ("failure", "timed_out", "startup_failure", "action_required")
)
UNREAD = "unread"  # in place of the kind of a failure whose log was not read
CELL, COLUMN, COMMIT = ci_cell.c, ci_column.c, branch_commit.c
OF_DAY, LINE, RUNNER, EVENT = ci_day.c, ci_line.c, ci_runner_day.c, trunk_event.c
JOB = records["workflow_job"].c
SLICE = 1_000  # rows
_STARTED = Statement(
    sa.select(JOB.id, JOB.runner_name, JOB.steps)
    .join(ci_cell, sa.and_(CELL.repository_id == JOB.repository_id, CELL.job_id == JOB.id))
    .where(
        CELL.repository_id == sa.bindparam("repository"),
        CELL.queued_at >= sa.bindparam("since"),
        CELL.state == STATES.index("in_progress"),
        JOB.runner_name.contains("-runner-"),
    )
    .limit(sa.bindparam("most"))
)
_SIGNALS = Statement(
    sa.select(LINE.sha, LINE.signal_seconds).where(
        LINE.repository_id == sa.bindparam("repository"),
        LINE.branch == sa.bindparam("branch"),
        LINE.day.in_(sa.bindparam("days", expanding=True)),
    )
)
COMMITS_MOST = 1_000  # of a day


class RunTimes(CommitKey, JobAttempt, JobState, JobTimes, JobRunner, FailureKind, JobHold):
    """One run of one job."""


class ColumnDay(Day, ColumnCells):
    """What a column showed on the commits of a day, oldest first."""


class WaitingRow(JobColumn, JobState, JobTimes, JobRunner):
    """A job that has not ended."""


def run_seconds(run: RunTimes) -> int:
    """Return how long a run took; 0 while it goes on, and where the clocks are wrong."""
    if run["started_at"] is None or run["completed_at"] is None:
        return 0
    return max(0, run["completed_at"] - run["started_at"]) // 1000


def queue_seconds(run: RunTimes) -> float | None:
    """Return how long a run waited for a runner; None before it got one, or if it first waited for an approval."""
    if run["started_at"] is None or run["queued_at"] is None or run["held"]:
        return None
    if run["conclusion"] in NEVER_RAN and run["started_at"] == run["completed_at"]:
        return None
    return max(0, run["started_at"] - run["queued_at"]) / 1000


def count_columns(grid: Grid, seconds: Mapping[str, int]) -> list[ColumnCells]:
    """Return what each column showed, and how long its runs took, for a grid of the commits of one day.

    There is a character for each commit, oldest first; a failure of the infrastructure is in lower case.
    """
    return [
        {
            "name": column.name,
            "workflow": column.workflow,
            "cells": "".join(map(_character, reversed(grid.column(place)))),
            "seconds": seconds.get(column.name, 0),
        }
        for place, column in enumerate(grid.columns)
    ]


def count_lines(grid: Grid, times: Iterable[RunTimes], runners: NamedPatterns) -> list[LineSums]:
    """Return how each commit fared, oldest first; `runners` name labels, see `runner_labels`."""
    by_commit: defaultdict[str, list[RunTimes]] = defaultdict(list)
    for times_of_run in times:
        by_commit[times_of_run["head_sha"]].append(times_of_run)
    return [
        _line_sums(grid, line, by_commit.get(line.commit["sha"], []), runners)
        for line in reversed(grid.lines)
    ]


def count_runner_days(times: Iterable[RunTimes], runners: NamedPatterns) -> dict[str, RunnerCounts]:
    """Count the jobs of a day by runner label."""
    by_label: defaultdict[str, list[RunTimes]] = defaultdict(list)
    for times_of_run in times:
        by_label[job_names.counted_label(times_of_run["runner_label"], runners)].append(times_of_run)
    return {label: _runner_counts(runs) for label, runs in sorted(by_label.items())}


async def times_of_commits(tx: Transaction, repository_id: int, shas: Sequence[str]) -> list[RunTimes]:
    """Return the times of every run on some commits; a commit status does not count as a run."""
    is_status = sa.exists().where(COLUMN.id == CELL.column_id, COLUMN.source == STATUS)
    return await _times(tx, CELL.repository_id == repository_id, CELL.head_sha.in_(shas), ~is_status)


async def times_of_day(tx: Transaction, repository_id: int, day: int) -> list[RunTimes]:
    """Return the times of every run created on a day."""
    created = CELL.queued_at.between(day * DAY, (day + 1) * DAY - 1)
    return await _times(tx, CELL.repository_id == repository_id, created)


async def seconds_by_column(tx: Transaction, repository_id: int, shas: Sequence[str]) -> dict[str, int]:
    """Return how long the runs on some commits took, by each of the two names that their column may have."""
    by_column: dict[str, int] = {}
    for key in (
        CELL.numbered_column_id,
        CELL.column_id,
    ):  # the second for all: also for those without numbers
        took = sa.func.sum(CELL.completed_at - CELL.started_at) / 1000
        query = sa.select(COLUMN.workflow, COLUMN.job, took).where(
            CELL.repository_id == repository_id,
            CELL.head_sha.in_(shas),
            CELL.completed_at >= CELL.started_at,
            ORIGINAL,
            COLUMN.id == key,
        )
        for workflow, job, seconds in await tx.run(query.group_by(COLUMN.workflow, COLUMN.job)):
            by_column[f"{workflow} / {job}" if workflow else job] = int(seconds)
    return by_column


async def read_commits_of_day(
    tx: Transaction, repository_id: int, branch: str, day: int, *, limit: int
) -> list[CommitRow]:
    """Return the commits of a day of a branch."""
    query = select(CommitRow, branch_commit).where(
        COMMIT.repository_id == repository_id,
        COMMIT.branch == branch,
        COMMIT.at.between(day * DAY, (day + 1) * DAY - 1),
    )
    return await tx.fetch(query.order_by(COMMIT.at, COMMIT.sha).limit(limit))


async def read_column_days(tx: Transaction, repository_id: int, branch: str, first: int) -> list[ColumnDay]:
    """Return what columns showed from a day on, the oldest day first."""
    query = select(ColumnDay, ci_day).where(
        OF_DAY.repository_id == repository_id, OF_DAY.branch == branch, OF_DAY.day >= first
    )
    return await tx.fetch(query.order_by(OF_DAY.day, OF_DAY.name))


async def read_line_days(tx: Transaction, repository_id: int, branch: str, first: int) -> list[LineRow]:
    """Return how commits fared from a day on, the oldest first."""
    query = select(LineRow, ci_line).where(
        LINE.repository_id == repository_id, LINE.branch == branch, LINE.day >= first
    )
    return await tx.fetch(query.order_by(LINE.day, LINE.place))


async def read_signal_seconds(
    tx: Transaction, repository_id: int, branch: str, commits: Sequence[CommitRow]
) -> dict[str, int]:
    """Return how long the full results of commits took, by SHA, where this was counted."""
    days = sorted({row["at"] // DAY for row in commits})
    values = {"repository": repository_id, "branch": branch, "days": days}
    rows = (await tx.run(_SIGNALS, values)).all() if days else ()
    return {sha: seconds for sha, seconds in rows if seconds is not None}


async def read_runner_days(tx: Transaction, repository_id: int, first: int) -> list[RunnerDayRow]:
    """Return the jobs of runners from a day on."""
    query = select(RunnerDayRow, ci_runner_day).where(
        RUNNER.repository_id == repository_id, RUNNER.day >= first
    )
    return await tx.fetch(query.order_by(RUNNER.day, RUNNER.label))


async def read_unfinished(tx: Transaction, repository_id: int, since: int, limit: int) -> list[WaitingRow]:
    """Return jobs created since a time (epoch milliseconds) that, like their run, have not ended; the oldest first."""
    query = select(WaitingRow, ci_cell).where(
        CELL.repository_id == repository_id,
        CELL.queued_at >= since,
        CELL.completed_at.is_(None),
        CELL.conclusion == 0,
        GOES_ON,
    )
    return await tx.fetch(query.order_by(CELL.queued_at).limit(limit))


async def read_started(tx: Transaction, repository_id: int, since: int, limit: int) -> list[StartedJob]:
    """Return jobs created since a time (epoch milliseconds) that runners of scale sets may have taken."""
    rows = await tx.run(_STARTED, {"repository": repository_id, "since": since, "most": limit})
    return [(job_id, runner, steps) for job_id, runner, steps in rows.all()]


async def read_events(tx: Transaction, repository_id: int, branch: str, limit: int) -> list[ColumnEvent]:
    """Return the newest changes of columns of a branch."""
    query = select(ColumnEvent, trunk_event).where(
        EVENT.repository_id == repository_id, EVENT.branch == branch
    )
    order = (EVENT.at.desc().nulls_last(), EVENT.name, EVENT.first_bad, EVENT.state_after)
    return await tx.fetch(query.order_by(*order).limit(limit))


async def count_branch(context: Context, place: SumPlace) -> CountedSum | None:
    """Count a day of a watched branch, in a thread, so that nothing else waits."""
    (identifier, name), settings = place.group, context.settings
    async with context.store.read() as tx:
        branch = await column_changes.find_watched_branch(tx, settings, identifier, name)
        if branch is None:
            return None
        commits = await read_commits_of_day(tx, identifier, name, place.day, limit=COMMITS_MOST)
    shas = [row["sha"] for row in commits]
    await commit_cells.store_missing_cells(context.store, identifier, shas)
    async with context.store.read() as tx:
        commits = await read_commits_of_day(tx, identifier, name, place.day, limit=COMMITS_MOST)
        shas = [row["sha"] for row in commits]
        facts = await branch_reads.read_facts(tx, settings, branch, grid.order_commits(commits))
        times = await times_of_commits(tx, identifier, shas)
        seconds = await seconds_by_column(tx, identifier, shas)
    return await asyncio.to_thread(_read_branch_rows, facts, times, seconds, settings.of(TrunkSettings))


async def count_runners(context: Context, place: SumPlace) -> CountedSum | None:
    """Count the jobs of an upstream repository that were created on a day."""
    (identifier,), settings = place.group, context.settings
    async with context.store.read() as tx:
        repository = await rows.repository(tx, {identifier})
        if repository is None or not settings.is_upstream(repository["full_name"]):
            return None
        times = await times_of_day(tx, identifier, place.day)
    return await asyncio.to_thread(_read_runner_rows, times, settings.of(TrunkSettings))


def _runner_counts(runs: Sequence[RunTimes]) -> RunnerCounts:
    first = [run for run in runs if run["attempt"] == 1]
    waits = [wait for run in first if (wait := queue_seconds(run)) is not None]
    took = [run_seconds(run) for run in runs if run["completed_at"] is not None]
    return {
        "jobs": len(runs),
        "queue": histogram.to_bytes(histogram.pack(waits)),
        "duration": histogram.to_bytes(histogram.pack(took)),
    }


def _character(cell: Cell | None) -> str:
    if cell is None:
        return NOTHING
    return cell.character.lower() if cell.infra else cell.character


def _line_sums(grid: Grid, line: GridLine, runs: Sequence[RunTimes], runners: NamedPatterns) -> LineSums:
    began = min((run["queued_at"] for run in runs if run["queued_at"] is not None), default=None)
    failed = [
        cell.first_ended_at
        for place, cell in line.cells.items()
        if cell.broken and grid.columns[place].blocking and cell.first_ended_at is not None
    ]
    seconds: defaultdict[str, int] = defaultdict(int)
    for run in runs:
        seconds[job_names.counted_label(run["runner_label"], runners)] += run_seconds(run)
    failures = Counter(run["failure_kind"] or UNREAD for run in runs if run["conclusion"] in FAILED)
    return {
        "sha": line.commit["sha"],
        "verdict": line.verdict,
        "red_seconds": _since(began, min(failed, default=None)),
        "signal_seconds": _since(began, line.signal_at),
        "jobs": len(runs),
        "reruns": sum(run["attempt"] > 1 for run in runs),
        "flaky": sum(cell.character == "F" for cell in line.cells.values()),
        "cancelled_seconds": sum(run_seconds(run) for run in runs if run["conclusion"] == CANCELLED),
        "seconds": dict(sorted(seconds.items())),
        "failures": dict(sorted(failures.items())),
    }


def _since(began: int | None, ended: int | None) -> int | None:
    return None if began is None or ended is None else max(0, ended - began) // 1000


async def _times(tx: Transaction, *conditions: sa.ColumnElement[bool]) -> list[RunTimes]:
    """Read the times of runs in slices: a day may have many thousands, and other work goes on between slices."""
    times: list[RunTimes] = []
    async for part in tx.slices(select(RunTimes, ci_cell).where(*conditions, ORIGINAL), size=SLICE):
        times += as_rows(RunTimes, part)
    return times


def _read_branch_rows(
    facts: grid.Facts, times: list[RunTimes], seconds: dict[str, int], options: TrunkSettings
) -> CountedSum:
    # names as they are now: what is hidden, and what a name was before, may change
    whole = grid.build_grid(facts, replace(options, ci_hide=(), ci_aliases=()))
    return {
        ci_day: count_columns(whole, seconds),
        ci_line: [
            {"place": place, **sums}
            for place, sums in enumerate(count_lines(whole, times, options.ci_runners))
        ],
    }


def _read_runner_rows(times: list[RunTimes], options: TrunkSettings) -> CountedSum:
    runner_days = count_runner_days(times, options.ci_runners)
    return {ci_runner_day: [{"label": label, **counts} for label, counts in runner_days.items()]}
