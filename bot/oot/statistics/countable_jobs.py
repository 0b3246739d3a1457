"""Rows that statistics count: jobs and silent dispatches of some days, and the names of the jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, cast

import sqlalchemy as sa

from bot.db.rows import select
from bot.ingest.retention import delete_rows
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
from bot.oot.statistics.stats import DAY, ENDS
from bot.oot.statistics.tables import JobNameRow, oot_failure_kind, oot_job_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.sums import SumPlace

JOB, DISPATCH = oot_workflow_job.c, oot_dispatch.c
SLICE = 500  # rows read at a time
_other = oot_workflow_job.alias("other")
_DROPPED = sa.exists().where(DISPATCH.id == JOB.dispatch_id, DISPATCH.state == "superseded")
FAILURE_KIND = (
    sa.select(oot_failure_kind.c.kind).where(oot_failure_kind.c.job_key == JOB.job_key).scalar_subquery()
)
NAME = oot_job_name.c
NAME_KEY = ("backend_key", "upstream_key", "workflow", "job")
NAMES_MOST = 2_000  # names of one backend: the newest; it can call its jobs whatever it likes
NAMES_SCANNED = 20_000  # names that a search looks through, the newest


class CountableJob(JobOutcome, JobSubject, JobDurations, JobOrigin, JobTimes):
    """What statistics need of a job."""

    swept: bool  # concluded by our own time limit, not by a report
    failure_kind: NotRequired[str | None]  # why it failed, where its log says
    counts: bool


class SilentDispatch(DispatchEvent, DispatchBackend, DispatchState):
    """What statistics need of a dispatch that ended without a report."""

    counts: bool


def has_flag(name: str, flags: sa.ColumnElement[Any] = JOB.flags) -> sa.ColumnElement[bool]:
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
    ~has_flag("refused", _other.c.flags),
)
COUNTS = ~_OVERTAKEN & ~_DROPPED
HAS_REPORTS = sa.exists().where(JOB.dispatch_id == DISPATCH.id, ~has_flag("refused"))
COUNTABLE_JOBS = select(
    CountableJob, oot_workflow_job, swept=has_flag("swept"), failure_kind=FAILURE_KIND, counts=COUNTS
)
SILENT_DISPATCHES = select(SilentDispatch, oot_dispatch, counts=~HAS_REPORTS)


async def read_slices(
    tx: Transaction, backends: Collection[str], *, since: int, until: int
) -> AsyncIterator[tuple[list[CountableJob], list[SilentDispatch]]]:
    """Yield, slice by slice, the jobs first reported and silent dispatches created in a span; backends are case folded.

    A day can have any number of them.
    """
    keys = sorted(backends)
    jobs = COUNTABLE_JOBS.where(
        sa.func.lower(JOB.downstream_repo).in_(keys),
        JOB.received_at.between(since, until),
        ~has_flag("refused"),
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


async def keep_names(tx: Transaction, place: SumPlace) -> None:
    """Record the names of a backend's jobs of a day that were reported since names were last recorded."""
    (backend,), day = place
    newest = sa.select(sa.func.max(NAME.last_at)).where(NAME.backend_key == backend)
    since = max((await tx.run(newest)).scalar() or 0, day * DAY)
    upstream = sa.func.lower(JOB.upstream_repo)
    query = sa.select(
        upstream.label("upstream_key"),
        JOB.workflow_name.label("workflow"),
        JOB.job_name.label("job"),
        sa.func.max(JOB.downstream_repo).label("backend"),
        sa.func.max(JOB.received_at).label("last_at"),
    ).where(
        sa.func.lower(JOB.downstream_repo) == backend,
        JOB.received_at.between(since, (day + 1) * DAY - 1),
        ~has_flag("refused"),
    )
    named = (await tx.run(query.group_by(upstream, JOB.workflow_name, JOB.job_name))).mappings()
    if not named:
        return
    rows = sorted(
        ({"backend_key": backend, **row} for row in named), key=lambda row: [row[name] for name in NAME_KEY]
    )
    await tx.upsert(oot_job_name, rows, replaced=("backend",), greatest=("last_at",))
    mine = sa.select(NAME.last_at).where(NAME.backend_key == backend)
    last = (await tx.run(mine.order_by(NAME.last_at.desc()).offset(NAMES_MOST).limit(1))).scalar()
    if last is not None:
        await tx.run(sa.delete(oot_job_name).where(NAME.backend_key == backend, NAME.last_at <= last))


async def find_names(
    tx: Transaction, words: Sequence[str], *, hidden: Collection[str], limit: int
) -> list[JobNameRow]:
    """Find jobs whose workflow and name contain all of these words; the most recently reported come first.

    `hidden` are upstream repositories, in lower case, whose jobs may not be shown.
    """
    newest = sa.select(oot_job_name).where(NAME.upstream_key.not_in(sorted(hidden)))
    some = newest.order_by(NAME.last_at.desc()).limit(NAMES_SCANNED).subquery()
    name = some.c.workflow + sa.literal(" / ") + some.c.job
    query = select(JobNameRow, some).where(*(name.icontains(word, autoescape=True) for word in words))
    return await tx.fetch(query.order_by(some.c.last_at.desc(), some.c.workflow, some.c.job).limit(limit))


async def forget_names(context: Context) -> dict[str, int]:
    """Delete the names of jobs that were last reported before the retention of records."""
    before = context.clock.now() - context.settings.record_retention_days * DAY
    return {"names of jobs": await delete_rows(context, oot_job_name, NAME.last_at < before)}
