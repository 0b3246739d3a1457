"""Which runs are to be run again, and what came of it? Reads and writes of oot_rerun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.tables import RERUN_AWAITED, oot_dispatch, oot_rerun, oot_workflow_job

if TYPE_CHECKING:
    from bot.store.limits import Limits
    from bot.store.transaction import Transaction

Row = dict[str, Any]
PAGE = 500  # rows concluded in one transaction


async def ask(tx: Transaction, row: Row) -> bool:
    """Record the wish to run a run again; returns False when that very attempt was asked for already.

    What GitHub could not do then may be asked for once more: nothing need have taken its place.
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


async def of_dispatches(tx: Transaction, dispatch_ids: list[str]) -> list[Row]:
    """Return the re-runs asked for of these dispatches."""
    return await tx.rows(sa.select(oot_rerun).where(oot_rerun.c.dispatch_id.in_(dispatch_ids)))


async def note_begun(tx: Transaction) -> None:
    """Mark the re-runs that have reported: nobody waits for them any more."""
    job = oot_workflow_job.c
    reported = sa.exists().where(
        job.dispatch_id == oot_rerun.c.dispatch_id,
        job.run_id == oot_rerun.c.run_id,
        job.run_attempt > oot_rerun.c.from_attempt,
    )
    await tx.run(sa.update(oot_rerun).where(RERUN_AWAITED, reported).values(state="begun"))


async def silent(tx: Transaction, limits: Limits) -> list[Row]:
    """Return re-runs, with their dispatch's columns, that were asked for too long ago to report still."""
    columns = (oot_dispatch.c.upstream_repo, oot_dispatch.c.pr_number, oot_dispatch.c.backend)
    query = (
        sa.select(oot_rerun, *columns)
        .join(oot_dispatch, oot_dispatch.c.id == oot_rerun.c.dispatch_id)
        .where(
            RERUN_AWAITED,
            oot_rerun.c.created_at < limits.since(tx.now, oot_dispatch.c.backend_key),
        )
    )
    order = (oot_rerun.c.created_at, oot_rerun.c.dispatch_id, oot_rerun.c.run_id, oot_rerun.c.from_attempt)
    return await tx.rows(query.order_by(*order).limit(PAGE))


async def settle(tx: Transaction, row: Row, state: str) -> None:
    """Mark a re-run sent, impossible or never_started, unless it was settled otherwise meanwhile."""
    same = ("dispatch_id", "run_id", "from_attempt", "state")
    matches = [oot_rerun.c[name] == row[name] for name in same]
    await tx.run(sa.update(oot_rerun).where(*matches).values(state=state))
