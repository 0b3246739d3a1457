"""Reads behind the sums by day: the times of runs, and the sums as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk.cells import STATES
from bot.ci.trunk.counting import RunTimes
from bot.ci.trunk.store.column_ids import STATUS
from bot.ci.trunk.store.rows import GOES_ON, ORIGINAL
from bot.ci.trunk.tables import (
    ColumnCells,
    ColumnEvent,
    CommitRow,
    Day,
    JobColumn,
    JobRunner,
    JobState,
    JobTimes,
    LineRow,
    RunnerDayRow,
    branch_commit,
    ci_cell,
    ci_column,
    ci_day,
    ci_line,
    ci_runner_day,
    trunk_event,
)
from bot.db.rows import as_rows, select
from bot.db.statements import Statement
from bot.ingest.tables import records
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.runner_queue import StartedJob
    from bot.db.transaction import Transaction

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


class ColumnDay(Day, ColumnCells):
    """What a column showed on the commits of a day, oldest first."""


class WaitingRow(JobColumn, JobState, JobTimes, JobRunner):
    """A job that has not ended."""


async def times_of_commits(tx: Transaction, repository_id: int, shas: Sequence[str]) -> list[RunTimes]:
    """Return the times of every run on some commits; a commit status is no run."""
    is_status = sa.exists().where(COLUMN.id == CELL.column_id, COLUMN.source == STATUS)
    return await _times(tx, CELL.repository_id == repository_id, CELL.head_sha.in_(shas), ~is_status)


async def times_of_day(tx: Transaction, repository_id: int, day: int) -> list[RunTimes]:
    """Return the times of every run created on a day."""
    created = CELL.queued_at.between(day * DAY, (day + 1) * DAY - 1)
    return await _times(tx, CELL.repository_id == repository_id, created)


async def _times(tx: Transaction, *conditions: sa.ColumnElement[bool]) -> list[RunTimes]:
    """Read times of runs, of which a day may have many thousands: other work goes on between the slices."""
    found: list[RunTimes] = []
    async for part in tx.slices(select(RunTimes, ci_cell).where(*conditions, ORIGINAL), size=SLICE):
        found += as_rows(RunTimes, part)
    return found


async def seconds_by_column(tx: Transaction, repository_id: int, shas: Sequence[str]) -> dict[str, int]:
    """Return how long the runs on some commits took, by both names that their column may have."""
    found: dict[str, int] = {}
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
            found[f"{workflow} / {job}" if workflow else job] = int(seconds)
    return found


async def commits_of_day(
    tx: Transaction, repository_id: int, branch: str, day: int, *, limit: int
) -> list[CommitRow]:
    """Return the commits of a day of a branch."""
    query = select(CommitRow, branch_commit).where(
        COMMIT.repository_id == repository_id,
        COMMIT.branch == branch,
        COMMIT.at.between(day * DAY, (day + 1) * DAY - 1),
    )
    return await tx.fetch(query.order_by(COMMIT.at, COMMIT.sha).limit(limit))


async def column_days(tx: Transaction, repository_id: int, branch: str, first: int) -> list[ColumnDay]:
    """Return what columns showed since a day, the oldest day first."""
    query = select(ColumnDay, ci_day).where(
        OF_DAY.repository_id == repository_id, OF_DAY.branch == branch, OF_DAY.day >= first
    )
    return await tx.fetch(query.order_by(OF_DAY.day, OF_DAY.name))


async def line_days(tx: Transaction, repository_id: int, branch: str, first: int) -> list[LineRow]:
    """Return how commits fared since a day, the oldest first."""
    query = select(LineRow, ci_line).where(
        LINE.repository_id == repository_id, LINE.branch == branch, LINE.day >= first
    )
    return await tx.fetch(query.order_by(LINE.day, LINE.place))


async def signal_seconds(
    tx: Transaction, repository_id: int, branch: str, commits: Sequence[CommitRow]
) -> dict[str, int]:
    """Return how long the full result of commits took, by SHA, where it was counted."""
    days = sorted({row["at"] // DAY for row in commits})
    values = {"repository": repository_id, "branch": branch, "days": days}
    found = (await tx.run(_SIGNALS, values)).all() if days else ()
    return {sha: seconds for sha, seconds in found if seconds is not None}


async def runner_days(tx: Transaction, repository_id: int, first: int) -> list[RunnerDayRow]:
    """Return the jobs of runners since a day."""
    query = select(RunnerDayRow, ci_runner_day).where(
        RUNNER.repository_id == repository_id, RUNNER.day >= first
    )
    return await tx.fetch(query.order_by(RUNNER.day, RUNNER.label))


async def unfinished(tx: Transaction, repository_id: int, since: int, limit: int) -> list[WaitingRow]:
    """Return jobs created since a time (epoch milliseconds) that have not ended, nor their run; the oldest first."""
    query = select(WaitingRow, ci_cell).where(
        CELL.repository_id == repository_id,
        CELL.queued_at >= since,
        CELL.completed_at.is_(None),
        CELL.conclusion == 0,
        GOES_ON,
    )
    return await tx.fetch(query.order_by(CELL.queued_at).limit(limit))


async def started(tx: Transaction, repository_id: int, since: int, limit: int) -> list[StartedJob]:
    """Return jobs created since a time (epoch milliseconds) that runners of scale sets may have taken."""
    found = await tx.run(_STARTED, {"repository": repository_id, "since": since, "most": limit})
    return [(job_id, runner, steps) for job_id, runner, steps in found.all()]


async def events(tx: Transaction, repository_id: int, branch: str, limit: int) -> list[ColumnEvent]:
    """Return the newest changes of columns of a branch."""
    query = select(ColumnEvent, trunk_event).where(
        EVENT.repository_id == repository_id, EVENT.branch == branch
    )
    order = (EVENT.at.desc().nulls_last(), EVENT.name, EVENT.first_bad, EVENT.state_after)
    return await tx.fetch(query.order_by(*order).limit(limit))
