"""Backends' runs: what GitHub says of them, which it has announced, and requests to run them again."""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import RowStatement
from bot.db.transaction import among_given
from bot.ingest.tables import records
from bot.oot.results.tables import (
    RERUN_AWAITED,
    RerunRow,
    RunStatusRow,
    oot_dispatch,
    oot_rerun,
    oot_run,
    oot_workflow_job,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.ingest.record_rows import WorkflowRunRow
    from bot.oot.results.dispatches import Timeouts

WITHIN = 30_000  # milliseconds between the runs of one event
DISPATCH_EVENT = "repository_dispatch"
RunKey = tuple[str, str]  # backend, case folded; run id
_reported, _near, _job = (
    records["workflow_run"].alias("reported"),
    records["workflow_run"],
    oot_workflow_job.c,
)
_dispatch = (
    sa.select(sa.func.max(_job.dispatch_id))
    .where(
        _job.run_id == sa.cast(_near.c.id, sa.Text),
        sa.func.lower(_job.downstream_repo) == sa.func.lower(_near.c.repo),
    )
    .scalar_subquery()
)
_same_event = (
    _near.c.head_sha == _reported.c.head_sha,
    _near.c.repository_id == _reported.c.repository_id,
    _near.c.actor_login == _reported.c.actor_login,
    _near.c.event == DISPATCH_EVENT,
    _reported.c.event == DISPATCH_EVENT,
    _near.c.created_at.between(_reported.c.created_at - WITHIN, _reported.c.created_at + WITHIN),
)
_RUN = records["workflow_run"].c
RECORDED_RUNS = RowStatement(
    select(
        RunStatusRow,
        records["workflow_run"],
        backend_key=sa.func.lower(_RUN.repo),
        run_id=sa.cast(_RUN.id, sa.Text),
    ).where(_RUN.id.in_(sa.bindparam("numbers", expanding=True)))
)
PAGE = 500  # rows concluded in one transaction

OF_DISPATCHES = RowStatement(
    select(RerunRow, oot_rerun).where(oot_rerun.c.dispatch_id.in_(sa.bindparam("dispatches", expanding=True)))
)


class NearbyRunRow(RunStatusRow):
    """A run that began at about the time of one that has reported, which may be itself."""

    path: str | None  # of its workflow
    created_at: int | None
    dispatch_id: str | None  # that it has reported on
    beside: int  # the id of the run that has reported


NEARBY = RowStatement(
    select(
        NearbyRunRow,
        _near,
        backend_key=sa.func.lower(_near.c.repo),
        run_id=sa.cast(_near.c.id, sa.Text),
        dispatch_id=_dispatch,
        beside=_reported.c.id,
    )
    .join(_reported, sa.and_(*_same_event))
    .where(_reported.c.id.in_(sa.bindparam("numbers", expanding=True)))
    .order_by(_near.c.id, _near.c.run_attempt)
)


async def read_announced(tx: Transaction, runs: Iterable[RunKey]) -> dict[RunKey, list[RunStatusRow]]:
    """Return the unreported runs that started from the same event as runs that have reported, by the latter."""
    wanted = set(runs)
    numbers = sorted({int(run) for _, run in wanted if run.isascii() and run.isdigit() and len(run) < 19})
    if not numbers:
        return {}
    nearby: defaultdict[RunKey, dict[str, NearbyRunRow]] = defaultdict(dict)
    for row in await tx.fetch(NEARBY, {"numbers": numbers}):
        nearby[row["backend_key"], str(row["beside"])][row["run_id"]] = row  # the newest attempt stays
    return {run: _of_same_event(run[1], list(nearby[run].values())) for run in wanted if run in nearby}


async def read_pulls_beside(tx: Transaction, run: WorkflowRunRow) -> list[tuple[str, int | None]]:
    """Return the pull requests of reported runs that the same event may have started as this run."""
    if run["event"] != DISPATCH_EVENT or run["created_at"] is None:
        return []
    near, job = _near.c, _job
    query = (
        sa.select(job.upstream_repo, job.pr_number)
        .distinct()
        .join_from(
            _near,
            oot_workflow_job,
            (job.run_id == sa.cast(near.id, sa.Text))
            & (sa.func.lower(job.downstream_repo) == sa.func.lower(near.repo)),
        )
        .where(
            near.head_sha == run["head_sha"],
            near.repository_id == run["repository_id"],
            near.event == DISPATCH_EVENT,
            near.id != run["id"],
            near.created_at.between(run["created_at"] - WITHIN, run["created_at"] + WITHIN),
            job.dispatch_id.is_not(None),
        )
    )
    return [(repo, number) for repo, number in await tx.run(query)]


async def read_run_statuses(tx: Transaction, runs: set[tuple[str, str]]) -> list[RunStatusRow]:
    """Return GitHub's statuses of runs, given as (backend, case folded; run id), the decisive one last.

    What deliveries or the API reported is in `workflow_run`; what asking in vain found, in oot_run: a run GitHub does
    not know is `missing` until something is known about it, one that did not end in time `unconfirmed`, one that could
    not be read in time `unreadable`, both until it ends.
    """
    numbers = [
        int(run_id) for _, run_id in runs if run_id.isascii() and run_id.isdigit() and len(run_id) < 19
    ]
    if not runs:
        return []
    rows = await tx.fetch(_asked_about(sqlite=tx.sqlite), {"wanted": tx.keys(sorted(runs))})
    rows += await tx.fetch(RECORDED_RUNS, {"numbers": numbers})
    known = [row for row in rows if (row["backend_key"], row["run_id"]) in runs]
    return sorted(known, key=_weight)


async def read_attempt_status(
    tx: Transaction, backend: str, run_id: str, attempt: int
) -> RunStatusRow | None:
    """Return GitHub's status of one attempt of one run, if it is known."""
    rows = await read_run_statuses(tx, {(backend.casefold(), run_id)})
    return next((row for row in reversed(rows) if row["run_attempt"] == attempt), None)


async def record_run_status(tx: Transaction, backend: str, run_id: str, attempt: int, status: str) -> None:
    """Record the outcome of asking GitHub for a run that it could not show."""
    row = {
        "backend_key": backend.casefold(),
        "run_id": run_id,
        "run_attempt": attempt,
        "status": status,
        "checked_at": tx.now,
    }
    await tx.upsert(oot_run, [row], replaced=("status", "checked_at"))


async def add_rerun(tx: Transaction, row: Mapping[str, object]) -> bool:
    """Record a request to run a run again; returns False when that attempt was requested already.

    An impossible re-run may be requested once more: nothing may have taken its place.
    """
    values = {**row, "state": "asked", "created_at": tx.now}
    renewed = {name: values[name] for name in ("scope", "cause", "state", "created_at")}
    insert = (
        tx.insert(oot_rerun)
        .values(values)
        .on_conflict_do_update(
            index_elements=["dispatch_id", "run_id", "from_attempt"],
            set_=renewed,
            where=oot_rerun.c.state == "impossible",
        )
    )
    return bool((await tx.run(insert)).rowcount)


async def read_reruns(tx: Transaction, dispatch_ids: Collection[str]) -> list[RerunRow]:
    """Return the re-runs of these dispatches."""
    return await tx.fetch(OF_DISPATCHES, {"dispatches": sorted(dispatch_ids)})


async def mark_reruns_begun(tx: Transaction) -> None:
    """Mark re-runs that have reported as begun."""
    job = oot_workflow_job.c
    reported = sa.exists().where(
        job.dispatch_id == oot_rerun.c.dispatch_id,
        job.run_id == oot_rerun.c.run_id,
        job.run_attempt > oot_rerun.c.from_attempt,
    )
    await tx.run(sa.update(oot_rerun).where(RERUN_AWAITED, reported).values(state="begun"))


async def read_timed_out_reruns(tx: Transaction, timeouts: Timeouts) -> list[RerunRow]:
    """Return re-runs requested longer ago than their backends may take."""
    query = (
        select(RerunRow, oot_rerun)
        .join(oot_dispatch, oot_dispatch.c.id == oot_rerun.c.dispatch_id)
        .where(
            RERUN_AWAITED,
            oot_rerun.c.created_at < timeouts.cutoff(tx.now, oot_dispatch.c.backend_key),
        )
    )
    order = (oot_rerun.c.created_at, oot_rerun.c.dispatch_id, oot_rerun.c.run_id, oot_rerun.c.from_attempt)
    return await tx.fetch(query.order_by(*order).limit(PAGE))


async def extend_rerun(tx: Transaction, row: Mapping[str, Any]) -> None:
    """Extend a re-run's timeout from now on: the run it repeats has not ended yet."""
    await tx.run(sa.update(oot_rerun).where(*_same_rerun(row)).values(created_at=tx.now))


async def settle_rerun(tx: Transaction, row: Mapping[str, Any], state: str) -> None:
    """Mark a re-run sent, impossible or never_started, unless its state has changed."""
    await tx.run(sa.update(oot_rerun).where(*_same_rerun(row)).values(state=state))


def _of_same_event(reported: str, nearby: Sequence[NearbyRunRow]) -> list[RunStatusRow]:
    dispatch_id = next((row["dispatch_id"] for row in nearby if row["run_id"] == reported), None)
    own = [row for row in nearby if row["dispatch_id"] == dispatch_id]
    others = [row for row in nearby if row["dispatch_id"] not in {None, dispatch_id}]
    paths = {row["path"] for row in own}
    return [
        row
        for row in nearby
        if dispatch_id and row["dispatch_id"] is None and row["path"] not in paths
        if _distance(row, own) <= _distance(row, others)
    ]


def _distance(row: NearbyRunRow, others: Sequence[NearbyRunRow]) -> int:
    """Return the time between a run and the nearest of others."""
    at = row["created_at"] or 0
    return min((abs(at - (other["created_at"] or 0)) for other in others), default=WITHIN)


@functools.cache
def _asked_about(*, sqlite: bool) -> RowStatement[RunStatusRow]:
    """Return the query for runs that GitHub was asked about, by backend and id."""
    key = (oot_run.c.backend_key, oot_run.c.run_id)
    query = select(RunStatusRow, oot_run, conclusion=sa.null(), event=sa.null())
    return RowStatement(query.where(among_given(key, "wanted", sqlite=sqlite)))


def _weight(row: RunStatusRow) -> int:
    """Return how decisive a status is: missing, then not ended, then unconfirmed, then ended."""
    return {"missing": 0, "unconfirmed": 2, "unreadable": 2, "completed": 3}.get(row["status"], 1)


def _same_rerun(row: Mapping[str, Any]) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        oot_rerun.c.dispatch_id == row["dispatch_id"],
        oot_rerun.c.run_id == row["run_id"],
        oot_rerun.c.from_attempt == row["from_attempt"],
        oot_rerun.c.state == row["state"],
    )
