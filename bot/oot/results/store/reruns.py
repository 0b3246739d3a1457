"""Requests to run backends' runs again, and their outcomes: reads and writes of oot_rerun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import RowStatement
from bot.oot.results.tables import RERUN_AWAITED, RerunRow, oot_dispatch, oot_rerun, oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.db.transaction import Transaction
    from bot.oot.results.store.dispatches import Timeouts

PAGE = 500  # rows concluded in one transaction

OF_DISPATCHES = RowStatement(
    select(RerunRow, oot_rerun).where(oot_rerun.c.dispatch_id.in_(sa.bindparam("dispatches", expanding=True)))
)


async def request(tx: Transaction, row: Mapping[str, object]) -> bool:
    """Record a request to run a run again; returns False when that attempt was requested already.

    An impossible one may be requested once more: nothing may have taken its place.
    """
    values = {**row, "state": "asked", "created_at": tx.now}
    again = {name: values[name] for name in ("scope", "cause", "state", "created_at")}
    insert = (
        tx.insert(oot_rerun)
        .values(values)
        .on_conflict_do_update(
            index_elements=["dispatch_id", "run_id", "from_attempt"],
            set_=again,
            where=oot_rerun.c.state == "impossible",
        )
    )
    return bool((await tx.run(insert)).rowcount)


async def read_for_dispatches(tx: Transaction, dispatch_ids: Collection[str]) -> list[RerunRow]:
    """Return the re-runs of these dispatches."""
    return await tx.fetch(OF_DISPATCHES, {"dispatches": sorted(dispatch_ids)})


async def mark_begun(tx: Transaction) -> None:
    """Mark re-runs that have reported as begun."""
    job = oot_workflow_job.c
    reported = sa.exists().where(
        job.dispatch_id == oot_rerun.c.dispatch_id,
        job.run_id == oot_rerun.c.run_id,
        job.run_attempt > oot_rerun.c.from_attempt,
    )
    await tx.run(sa.update(oot_rerun).where(RERUN_AWAITED, reported).values(state="begun"))


async def timed_out(tx: Transaction, timeouts: Timeouts) -> list[RerunRow]:
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


async def wait_on(tx: Transaction, row: Mapping[str, Any]) -> None:
    """Count the time a re-run may take from now: what it runs again has not ended yet."""
    await tx.run(sa.update(oot_rerun).where(*_same(row)).values(created_at=tx.now))


async def settle(tx: Transaction, row: Mapping[str, Any], state: str) -> None:
    """Mark a re-run sent, impossible or never_started, unless its state has changed."""
    await tx.run(sa.update(oot_rerun).where(*_same(row)).values(state=state))


def _same(row: Mapping[str, Any]) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        oot_rerun.c.dispatch_id == row["dispatch_id"],
        oot_rerun.c.run_id == row["run_id"],
        oot_rerun.c.from_attempt == row["from_attempt"],
        oot_rerun.c.state == row["state"],
    )
