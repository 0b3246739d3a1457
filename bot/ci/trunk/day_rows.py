"""Reads behind the sums by day: the times of runs, and the sums as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa

from bot.ci.trunk.cells import CONCLUSIONS, STATES
from bot.ci.trunk.counting import RunTimes
from bot.ci.trunk.rows import CommitRow
from bot.ci.trunk.tables import branch_commit, ci_cell, ci_column, ci_day, ci_line, ci_runner_day, trunk_event
from bot.db.statements import Statement
from bot.ingest.tables import records
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction

CELL, COLUMN, COMMIT = ci_cell.c, ci_column.c, branch_commit.c
OF_DAY, LINE, RUNNER, EVENT = ci_day.c, ci_line.c, ci_runner_day.c, trunk_event.c
JOB = records["workflow_job"].c
CANCELLED = CONCLUSIONS.index("cancelled")
FAILED = [CONCLUSIONS.index(word) for word in ("failure", "timed_out", "startup_failure", "action_required")]
SLICE = 1_000  # rows
_TIMES = (
    CELL.head_sha, CELL.attempt, (CELL.conclusion == CANCELLED).label("cancelled"),
    CELL.conclusion.in_(FAILED).label("failed"), CELL.failure_kind, CELL.queued_at, CELL.started_at, CELL.completed_at,
    CELL.runner_label,
)  # fmt: skip
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


class ColumnDayRow(TypedDict):
    """What a column showed on the commits of a day, oldest first."""

    day: int
    name: str
    workflow: str
    cells: str
    seconds: int


class LineRow(TypedDict):
    """How a commit of a branch fared."""

    day: int
    place: int
    sha: str
    verdict: str
    red_seconds: int | None
    signal_seconds: int | None
    jobs: int
    reruns: int
    flaky: int
    cancelled_seconds: int
    seconds: dict[str, int]
    failures: dict[str, int] | None  # None: counted by a version that did not look at them


class RunnerDayRow(TypedDict):
    """Jobs of one runner label created on a day."""

    label: str
    day: int
    jobs: int
    queue: bytes
    duration: bytes


class WaitingRow(TypedDict):
    """A job that has not ended."""

    job_id: int
    runner_label: str | None
    state: int
    queued_at: int | None
    started_at: int | None


class StartedRow(TypedDict):
    """A job that a runner has taken."""

    id: int
    runner_name: str | None
    steps: Any  # as GitHub had them when it told of the start


class EventRow(TypedDict):
    """A change of a column's state on a branch."""

    name: str
    first_bad: str
    state_after: str
    state_before: str
    last_good: str | None
    signature: str | None
    at: int | None


async def times_of_commits(tx: Transaction, repository_id: int, shas: Sequence[str]) -> list[RunTimes]:
    """Return the times of every run on some commits."""
    return await _times(tx, CELL.repository_id == repository_id, CELL.head_sha.in_(shas))


async def times_of_day(tx: Transaction, repository_id: int, day: int) -> list[RunTimes]:
    """Return the times of every run created on a day."""
    created = CELL.queued_at.between(day * DAY, (day + 1) * DAY - 1)
    return await _times(tx, CELL.repository_id == repository_id, created)


async def _times(tx: Transaction, *conditions: sa.ColumnElement[bool]) -> list[RunTimes]:
    """Read times of runs, of which a day may have many thousands: other work goes on between the slices."""
    found: list[RunTimes] = []
    async for part in tx.slices(sa.select(*_TIMES).where(*conditions), size=SLICE):
        found += [RunTimes(**row) for row in part]
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
            COLUMN.id == key,
        )
        for workflow, job, seconds in await tx.run(query.group_by(COLUMN.workflow, COLUMN.job)):
            found[f"{workflow} / {job}" if workflow else job] = int(seconds)
    return found


async def commits_of_day(
    tx: Transaction, repository_id: int, branch: str, day: int, *, limit: int
) -> list[CommitRow]:
    """Return the commits of a day of a branch."""
    query = sa.select(branch_commit).where(
        COMMIT.repository_id == repository_id,
        COMMIT.branch == branch,
        COMMIT.at.between(day * DAY, (day + 1) * DAY - 1),
    )
    return await tx.rows_as(CommitRow, query.order_by(COMMIT.at, COMMIT.sha).limit(limit))


async def column_days(tx: Transaction, repository_id: int, branch: str, first: int) -> list[ColumnDayRow]:
    """Return what columns showed since a day, the oldest day first."""
    wanted = (OF_DAY[name] for name in ColumnDayRow.__annotations__)
    query = sa.select(*wanted).where(
        OF_DAY.repository_id == repository_id, OF_DAY.branch == branch, OF_DAY.day >= first
    )
    return await tx.rows_as(ColumnDayRow, query.order_by(OF_DAY.day, OF_DAY.name))


async def line_days(tx: Transaction, repository_id: int, branch: str, first: int) -> list[LineRow]:
    """Return how commits fared since a day, the oldest first."""
    wanted = (LINE[name] for name in LineRow.__annotations__)
    query = sa.select(*wanted).where(
        LINE.repository_id == repository_id, LINE.branch == branch, LINE.day >= first
    )
    return await tx.rows_as(LineRow, query.order_by(LINE.day, LINE.place))


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
    wanted = (RUNNER[name] for name in RunnerDayRow.__annotations__)
    query = sa.select(*wanted).where(RUNNER.repository_id == repository_id, RUNNER.day >= first)
    return await tx.rows_as(RunnerDayRow, query.order_by(RUNNER.day, RUNNER.label))


async def unfinished(tx: Transaction, repository_id: int, since: int, limit: int) -> list[WaitingRow]:
    """Return jobs created since a time (epoch milliseconds) that have not ended, the oldest first."""
    wanted = (CELL[name] for name in WaitingRow.__annotations__)
    query = sa.select(*wanted).where(
        CELL.repository_id == repository_id,
        CELL.queued_at >= since,
        CELL.completed_at.is_(None),
        CELL.conclusion == 0,
    )
    return await tx.rows_as(WaitingRow, query.order_by(CELL.queued_at).limit(limit))


async def started(tx: Transaction, repository_id: int, since: int, limit: int) -> list[StartedRow]:
    """Return jobs created since a time (epoch milliseconds) that runners of scale sets may have taken."""
    return await tx.rows_as(
        StartedRow, _STARTED, {"repository": repository_id, "since": since, "most": limit}
    )


async def events(tx: Transaction, repository_id: int, branch: str, limit: int) -> list[EventRow]:
    """Return the newest changes of columns of a branch."""
    wanted = (EVENT[name] for name in EventRow.__annotations__)
    query = sa.select(*wanted).where(EVENT.repository_id == repository_id, EVENT.branch == branch)
    order = (EVENT.at.desc().nulls_last(), EVENT.name, EVENT.first_bad, EVENT.state_after)
    return await tx.rows_as(EventRow, query.order_by(*order).limit(limit))
