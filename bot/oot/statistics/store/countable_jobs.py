"""Rows that statistics count: jobs and silent dispatches of some days, each marked whether it counts.

docs/statistics.md defines which runs count; this is that definition in SQL. `tests.by_hand` has it in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, cast

import sqlalchemy as sa

from bot.db.rows import select
from bot.oot.results.tables import (
    DispatchBackend,
    DispatchEvent,
    DispatchState,
    JobDurations,
    JobOrigin,
    JobOutcome,
    JobSubject,
    JobTimes,
    oot_dispatch,
    oot_workflow_job,
)
from bot.oot.statistics.stats import ENDS
from bot.oot.statistics.tables import oot_failure_kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from bot.db.transaction import Transaction

JOB, DISPATCH = oot_workflow_job.c, oot_dispatch.c
SLICE = 500  # rows read at a time
_other = oot_workflow_job.alias("other")


class CountableJob(JobOutcome, JobSubject, JobDurations, JobOrigin, JobTimes):
    """What statistics need of a job."""

    swept: bool  # concluded by our own time limit, not by a report
    failure_kind: NotRequired[str | None]  # why it failed, where its log says
    counts: bool


class SilentDispatch(DispatchEvent, DispatchBackend, DispatchState):
    """What statistics need of a dispatch that ended without a report."""

    counts: bool


def flagged(name: str, flags: sa.ColumnElement[Any] = JOB.flags) -> sa.ColumnElement[bool]:
    """Whether a row carries a flag, without parsing its JSON."""
    return sa.cast(flags, sa.Text).contains(f'"{name}":')


_OVERTAKEN = sa.exists().where(
    _other.c.run_id == JOB.run_id,
    _other.c.job_name == JOB.job_name,
    _other.c.workflow_name == JOB.workflow_name,
    _other.c.delivery_id == JOB.delivery_id,
    # the empty text makes SQLite search the jobs of the run, not all jobs of the backend
    sa.func.lower(_other.c.downstream_repo) + "" == sa.func.lower(JOB.downstream_repo),
    _other.c.run_attempt >= JOB.run_attempt,  # a condition of its own, so that the index is used for it
    (_other.c.run_attempt > JOB.run_attempt) | (_other.c.source < JOB.source),  # callback before relay
    ~flagged("refused", _other.c.flags),
)
_DROPPED = sa.exists().where(DISPATCH.id == JOB.dispatch_id, DISPATCH.state == "superseded")
COUNTS = ~_OVERTAKEN & ~_DROPPED
HAS_REPORTS = sa.exists().where(JOB.dispatch_id == DISPATCH.id, ~flagged("refused"))

FAILURE_KIND = (
    sa.select(oot_failure_kind.c.kind).where(oot_failure_kind.c.job_key == JOB.job_key).scalar_subquery()
)
COUNTABLE_JOBS = select(
    CountableJob, oot_workflow_job, swept=flagged("swept"), failure_kind=FAILURE_KIND, counts=COUNTS
)
SILENT_DISPATCHES = select(SilentDispatch, oot_dispatch, counts=~HAS_REPORTS)


async def slices(
    tx: Transaction, backends: Collection[str], *, since: int, until: int
) -> AsyncIterator[tuple[list[CountableJob], list[SilentDispatch]]]:
    """Yield jobs first reported, and silent dispatches created, in a span of time; backends are case folded.

    In slices, because a day can have any number of them.
    """
    keys = sorted(backends)
    jobs = COUNTABLE_JOBS.where(
        sa.func.lower(JOB.downstream_repo).in_(keys),
        JOB.received_at.between(since, until),
        ~flagged("refused"),
    )
    silent = SILENT_DISPATCHES.where(
        DISPATCH.state.in_(list(ENDS)),
        DISPATCH.created_at.between(since, until),
        DISPATCH.backend_key.in_(keys),
    )
    async for rows in tx.slices(jobs, size=SLICE):
        yield cast("list[CountableJob]", rows), []
    async for rows in tx.slices(silent, size=SLICE):
        yield [], cast("list[SilentDispatch]", rows)
