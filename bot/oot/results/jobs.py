"""Jobs that backends reported: reads and writes of oot_workflow_job, and which results no longer count."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, cast

import msgspec
import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.ingest.record_store import follows_row
from bot.ingest.tables import delivery, records
from bot.oot.results.dispatches import ON_OPEN_HEAD
from bot.oot.results.tables import UNREPORTED, JobRow, oot_dispatch, oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from bot.db.rows import TypedSelect
    from bot.db.transaction import Transaction
    from bot.oot.results.dispatches import Timeouts

IDENTITY = ("downstream_repo", "delivery_id", "run_id", "run_attempt", "workflow_name", "job_name")
PAGE = 500  # jobs concluded in one transaction
_HEAVY = ("failed_tests_json", "environment")
_LIGHT = select(JobRow, oot_workflow_job, **{name: sa.null() for name in _HEAVY})
LENGTH_OF_TESTS = sa.func.coalesce(  # characters, of all jobs of a group
    sa.func.sum(sa.func.length(sa.cast(oot_workflow_job.c.failed_tests_json, sa.Text))), 0
)
JOB = oot_workflow_job.c
MOST_TESTS = 8_000_000  # characters of failed tests that are read for one page: a job may have 2,000,000
SIZE = sa.func.coalesce(sa.func.length(sa.cast(JOB.failed_tests_json, sa.Text)), 0)
NEWEST_JOBS = (JOB.received_at.desc(), JOB.run_attempt.desc(), JOB.job_key.desc())
ORDER_OF_JOBS = ("received_at", "run_attempt", "job_key")  # of a backend, newest first
_NAMED: sa.BindParameter[Any] = sa.bindparam("ids", expanding=True)
# in one order for all, so that no two transactions deadlock
_by_key = (
    select(JobRow, oot_workflow_job)
    .where(JOB.job_key.in_(sa.bindparam("keys", expanding=True)))
    .order_by(JOB.job_key)
)
BY_KEY, BY_KEY_HELD = RowStatement(_by_key), RowStatement(_by_key.with_for_update())
_unreported = (
    sa.select(oot_dispatch.c.id).where(oot_dispatch.c.id.in_(_NAMED), UNREPORTED).order_by(oot_dispatch.c.id)
)
UNREPORTED_OF, UNREPORTED_HELD = Statement(_unreported), Statement(_unreported.with_for_update())
HEARD = Statement(
    sa.update(oot_dispatch).where(oot_dispatch.c.id.in_(_NAMED)).values(heard_at=sa.bindparam("now"))
)
OF_DISPATCHES = RowStatement(select(JobRow, oot_workflow_job).where(JOB.dispatch_id.in_(_NAMED)))
LIGHT_OF_DISPATCHES = RowStatement(_LIGHT.where(JOB.dispatch_id.in_(_NAMED)))
COUNTS = (  # an index has all it takes
    Statement(
        sa.select(JOB.dispatch_id, sa.func.count().label("found"))
        .where(JOB.dispatch_id.in_(_NAMED))
        .group_by(JOB.dispatch_id)
    )
)
LENGTHS = Statement(
    sa.select(JOB.dispatch_id, LENGTH_OF_TESTS.label("found"))
    .where(JOB.dispatch_id.in_(_NAMED))
    .group_by(JOB.dispatch_id)
)
BLANK: dict[str, Any] = dict.fromkeys(oot_workflow_job.c.keys())

# settled by the first report; to set a column, even to what it was, makes SQLite write every index that has it
SETTLED = {
    "job_key", "dispatch_id", "downstream_repo", "upstream_repo", "pr_number", "head_sha", "delivery_id",
    "workflow_name", "job_name", "reporter_check_run_id", "run_id", "run_attempt", "downstream_repo_level",
    "event_type", "source", "started_at", "received_at",
}  # fmt: skip
CHANGING = [name for name in BLANK if name not in SETTLED]
CHANGE = Statement(
    sa.update(oot_workflow_job)
    .where(oot_workflow_job.c.job_key == sa.bindparam("of_key"))
    .values({name: sa.bindparam(f"new_{name}") for name in CHANGING})
)
OF_RUN = RowStatement(
    _LIGHT.where(
        oot_workflow_job.c.run_id == sa.bindparam("of_run"),
        sa.func.lower(oot_workflow_job.c.downstream_repo) == sa.bindparam("of_backend"),
        oot_workflow_job.c.dispatch_id.is_not(None),
    )
)
ANY_REPORT = Statement(
    sa.select(oot_workflow_job.c.job_key)
    .where(oot_workflow_job.c.dispatch_id == sa.bindparam("of_dispatch"))
    .limit(1)
)
Column = sa.ColumnElement[Any]
_job = records["workflow_job"].alias("overtaken_job")
_later = records["workflow_job"].alias("later_job")
_report = oot_workflow_job.alias("later_report")
_older, _newer = oot_dispatch.alias("older_dispatch"), oot_dispatch.alias("newer_dispatch")
_SAME = ("upstream_repo", "pr_number", "head_sha", "base_ref", "backend_key", "event_type")


class SizedJobRow(JobRow):
    """A job without its failed tests, and how many characters these have."""

    size: int


WITHOUT_TESTS = select(SizedJobRow, oot_workflow_job, failed_tests_json=sa.null(), size=SIZE)


def job_key(row: Mapping[str, Any]) -> str:
    """Return the key of one attempt of one job; parts are never joined, so none can pose as two."""
    parts = [row[name] for name in IDENTITY]
    parts[0] = parts[0].casefold()
    if row["source"] != "callback":
        # a relay's report is never mistaken for the backend's own
        parts.append(row["source"])
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def whole_row(row: Mapping[str, Any], change: Mapping[str, Any]) -> JobRow:
    """Return a job's row with a change; columns of a new one that nothing is known about are null."""
    return cast("JobRow", {**BLANK, **row, **change})


async def known_runs(tx: Transaction, runs: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return which of these runs, by dispatch and id, have a reported job."""
    if not runs:
        return set()
    query = sa.select(JOB.dispatch_id, JOB.run_id).distinct()
    query = query.where(JOB.dispatch_id.in_(sorted({dispatch for dispatch, _ in runs})))
    reported_runs = {(dispatch, run) for dispatch, run in await tx.run(query)}
    return reported_runs & set(runs)


async def get_jobs(tx: Transaction, keys: Collection[str], *, held: bool = True) -> dict[str, JobRow]:
    """Return jobs by key; `held` locks their rows until the transaction ends, for changing them."""
    if not keys:
        return {}
    query = BY_KEY_HELD if held and not tx.sqlite else BY_KEY
    rows = await tx.fetch(query, {"keys": sorted(keys)})
    return {row["job_key"]: row for row in rows}


async def add_jobs(tx: Transaction, rows: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Insert jobs by key; returns the keys that another transaction inserted meanwhile."""
    if not rows:
        return set()
    await _mark_reported(tx, {key for row in rows.values() if (key := row.get("dispatch_id"))})
    tx.note_changed("oot_workflow_job", rows.values())
    ordered = [{**BLANK, **rows[key]} for key in sorted(rows)]
    if tx.sqlite:  # the only writer: nothing can have come in between
        await tx.upsert(oot_workflow_job, ordered)
        return set()
    done = await tx.upsert(oot_workflow_job, ordered, returning=("job_key",))
    return set(rows) - set(done.scalars())


async def change_jobs(tx: Transaction, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the columns that may still change of jobs that `get_jobs` returned to this transaction."""
    if rows:
        tx.note_changed("oot_workflow_job", rows.values())
        changed = [
            {f"new_{name}": row[name] for name in CHANGING} | {"of_key": key}
            for key, row in sorted(rows.items())
        ]
        await tx.run(CHANGE, changed)


async def count_jobs(tx: Transaction, dispatch_ids: Collection[str]) -> dict[str, int]:
    """Count the jobs of dispatches; dispatches without any are left out."""
    return await _read_each(tx, COUNTS, dispatch_ids)


async def read_lengths_of_tests(tx: Transaction, dispatch_ids: Collection[str]) -> dict[str, int]:
    """Count the characters of failed tests that their jobs hold; dispatches without any are left out."""
    return await _read_each(tx, LENGTHS, dispatch_ids)


def in_lock_order(rows: Collection[JobRow]) -> list[JobRow]:
    """Return jobs in the one order in which all lock them, so that no two transactions deadlock."""
    return sorted(rows, key=lambda row: row["job_key"])


async def change_if_unchanged(tx: Transaction, job: JobRow, values: Mapping[str, object]) -> bool:
    """Change a job if its status and conclusion are still what they were; returns whether they were.

    Change several of them `in_lock_order`.
    """
    same = (
        oot_workflow_job.c.job_key == job["job_key"],
        oot_workflow_job.c.status == job["status"],
        oot_workflow_job.c.conclusion.is_not_distinct_from(job["conclusion"]),
    )
    tx.note_changed("oot_workflow_job", [job])
    return bool((await tx.run(sa.update(oot_workflow_job).where(*same).values(values))).rowcount)


async def read_jobs_of_dispatches(
    tx: Transaction, dispatch_ids: Collection[str], *, tests_of: Collection[str] = ()
) -> list[JobRow]:
    """Return the jobs of these dispatches, in the order of their first reports.

    Failed tests and environment can be megabytes: they are read for the dispatches `tests_of` only.
    """
    rest = sorted(set(dispatch_ids) - set(tests_of))
    rows = await tx.fetch(LIGHT_OF_DISPATCHES, {"ids": rest}) if rest else []
    if tests_of:
        rows += await tx.fetch(OF_DISPATCHES, {"ids": sorted(tests_of)})
    return sorted(rows, key=lambda row: (row["received_at"], row["job_key"]))


async def read_timed_out(tx: Transaction, timeouts: Timeouts) -> list[JobRow]:
    """Return jobs that are in progress for longer than their backends may take, oldest first."""
    job = oot_workflow_job.c
    query = select(JobRow, oot_workflow_job).where(
        job.status == "in_progress",
        job.started_at < tx.now - timeouts.shortest,
        job.started_at < timeouts.cutoff(tx.now, sa.func.lower(job.downstream_repo)),
    )
    return await tx.fetch(query.order_by(job.started_at, job.job_key).limit(PAGE))


async def read_jobs_of_run(tx: Transaction, backend: str, run_id: str) -> list[JobRow]:
    """Return the jobs of one run of a backend, every attempt, without their failed tests and environments."""
    return await tx.fetch(OF_RUN, {"of_run": run_id, "of_backend": backend.lower()})


async def has_reports(tx: Transaction, dispatch_id: str) -> bool:
    """Return whether a dispatch has any report."""
    return await tx.row(ANY_REPORT, {"of_dispatch": dispatch_id}) is not None


async def latest_jobs(
    tx: Transaction,
    backend: str,
    *,
    since: int,
    limit: int,
    hidden: Iterable[str] = (),
    events: Iterable[str] | None = None,
    before: tuple[str | int, ...] | None = None,
) -> list[JobRow]:
    """Return the newest jobs of a backend, without those of `hidden` upstreams (case folded).

    `before` holds the values of `ORDER_OF_JOBS` of the last job already read.
    """
    query = WITHOUT_TESTS.where(
        sa.func.lower(JOB.downstream_repo) == backend.lower(),
        JOB.received_at >= since,
        sa.func.lower(JOB.upstream_repo).not_in(list(hidden)),
        has_event(events),
    )
    if before:
        query = query.where(follows_row([JOB[name] for name in ORDER_OF_JOBS], before))
    return await rows_with_tests(tx, query.order_by(*NEWEST_JOBS).limit(limit))


def has_event(events: Iterable[str] | None) -> sa.ColumnElement[bool]:
    """Return the condition that jobs are of some events; None: of any."""
    return sa.true() if events is None else JOB.event_type.in_(sorted(events))


async def rows_with_tests(tx: Transaction, query: TypedSelect[SizedJobRow]) -> list[JobRow]:
    """Return the rows of a query of `WITHOUT_TESTS`; the first ones get their failed tests as far as they fit."""
    rows = await tx.fetch(query)
    keys = fitting_tests((row["job_key"], row["size"]) for row in rows)
    wanted = sa.select(JOB.job_key, JOB.failed_tests_json).where(JOB.job_key.in_(keys))
    tests: dict[str, Any] = dict(map(tuple, await tx.run(wanted))) if keys else {}
    for row in rows:
        row["failed_tests_json"] = tests.get(row["job_key"])
    return list(rows)


def fitting_tests(sizes: Iterable[tuple[str, int]]) -> list[str]:
    """Return which of the first jobs have failed tests, given as (key, size), as far as these fit."""
    left, keys = MOST_TESTS, []
    for key, size in sizes:
        left -= size
        if size and left >= 0:
            keys.append(key)
    return keys


def retained(table: sa.Table) -> sa.ColumnElement[bool] | None:
    """Return the condition that a row of a table is still needed, None where none is."""
    if table is delivery:
        return _retained_deliveries()
    if table is records["workflow_run"]:
        return _retained_runs(table)
    return None


def passed_later(repository_id: Column, job_id: Column) -> Column:
    """Whether a later attempt of a job in its run has passed, according to GitHub."""
    return sa.exists().where(
        _job.c.repository_id == repository_id,
        _job.c.id == job_id,
        _later.c.repository_id == repository_id,
        _later.c.run_id == _job.c.run_id,
        _later.c.run_attempt > _job.c.run_attempt,
        _later.c.name == _job.c.name,
        _later.c.conclusion == "success",
    )


def reported_later(backend_key: Column, run_id: Column, attempt: Column, name: Column) -> Column:
    """Whether a later attempt of a job in its run has passed, according to its backend; the id of the run is a text."""
    return sa.exists().where(
        _report.c.run_id == run_id,
        _report.c.job_name == name,
        sa.func.lower(_report.c.downstream_repo) == backend_key,
        _report.c.run_attempt > attempt,
        _report.c.conclusion == "success",
    )


def dispatched_later(dispatch_id: Column) -> Column:
    """Whether the same backend was dispatched again for the same commit, which was not dropped."""
    newer = sa.tuple_(_newer.c.created_at, _newer.c.id) > sa.tuple_(_older.c.created_at, _older.c.id)
    return sa.exists().where(
        _older.c.id == dispatch_id,
        *(_newer.c[name].is_not_distinct_from(_older.c[name]) for name in _SAME),
        newer,
        _newer.c.state != "superseded",
    )


async def _mark_reported(tx: Transaction, dispatches: Collection[str]) -> None:
    """Record the first report on dispatches that had none."""
    if not dispatches:
        return
    unreported = UNREPORTED_OF if tx.sqlite else UNREPORTED_HELD
    unreported_ids = list((await tx.run(unreported, {"ids": sorted(dispatches)})).scalars())
    if unreported_ids:
        await tx.run(HEARD, {"ids": unreported_ids, "now": tx.now})


async def _read_each(tx: Transaction, query: Statement, dispatch_ids: Collection[str]) -> dict[str, int]:
    if not dispatch_ids:
        return {}
    rows = await tx.run(query, {"ids": sorted(dispatch_ids)})
    return {row.dispatch_id: int(row.found) for row in rows}


def _retained_deliveries() -> sa.ColumnElement[bool]:
    """Deliveries of unfinished dispatches and of open heads: a run that cannot be re-run is dispatched again."""
    reported = oot_workflow_job.c.dispatch_id == oot_dispatch.c.id
    running = sa.and_(reported, oot_workflow_job.c.status == "in_progress")
    asked = oot_dispatch.c.action.is_distinct_from("closed")  # that is never reported on
    unanswered = ~sa.exists().where(reported) | sa.exists().where(running)
    unfinished = oot_dispatch.c.state.in_(("pending", "held", "waiting")) | (
        (oot_dispatch.c.state == "sent") & (oot_dispatch.c.level > 1) & asked & unanswered
    )
    return sa.exists().where(
        oot_dispatch.c.source_guid == delivery.c.guid, unfinished | (asked & ON_OPEN_HEAD)
    )


def _retained_runs(table: sa.Table) -> sa.ColumnElement[bool]:
    """Runs with reports are kept as long as their results: GitHub's status confirms them."""
    job = oot_workflow_job.c
    return sa.exists().where(
        job.run_id == sa.cast(table.c.id, sa.Text),
        sa.func.lower(job.downstream_repo) == sa.func.lower(table.c.repo),
    )
