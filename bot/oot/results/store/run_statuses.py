"""What GitHub says about the runs of backends: reads of workflow_run, reads and writes of oot_run."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import RowStatement
from bot.db.transaction import among_given
from bot.ingest.tables import records
from bot.oot.results.tables import RunStatusRow, oot_run

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

_RUN = records["workflow_run"].c
RECORDED_RUNS = RowStatement(
    select(
        RunStatusRow,
        records["workflow_run"],
        backend_key=sa.func.lower(_RUN.repo),
        run_id=sa.cast(_RUN.id, sa.Text),
    ).where(_RUN.id.in_(sa.bindparam("numbers", expanding=True)))
)


async def read_for_runs(tx: Transaction, runs: set[tuple[str, str]]) -> list[RunStatusRow]:
    """Return what is known from GitHub about runs, given as (backend, case folded; run id), the decisive last.

    What deliveries or the API reported is in `workflow_run`; what asking in vain found, in oot_run: a run GitHub does
    not know is `missing` until something is known about it, one that did not end in time `unconfirmed`, one that could
    not be read in time `unreadable`, both until it ends.
    """
    numbers = [
        int(run_id) for _, run_id in runs if run_id.isascii() and run_id.isdigit() and len(run_id) < 19
    ]
    if not runs:
        return []
    found = await tx.fetch(_asked_about(sqlite=tx.sqlite), {"wanted": tx.keys(sorted(runs))})
    found += await tx.fetch(RECORDED_RUNS, {"numbers": numbers})
    known = [row for row in found if (row["backend_key"], row["run_id"]) in runs]
    return sorted(known, key=_weight)


@functools.cache
def _asked_about(*, sqlite: bool) -> RowStatement[RunStatusRow]:
    """Return the query for runs, by backend and id, that GitHub was asked about."""
    key = (oot_run.c.backend_key, oot_run.c.run_id)
    query = select(RunStatusRow, oot_run, conclusion=sa.null(), event=sa.null())
    return RowStatement(query.where(among_given(key, "wanted", sqlite=sqlite)))


async def read_for_attempt(tx: Transaction, backend: str, run_id: str, attempt: int) -> RunStatusRow | None:
    """Return what is known from GitHub about one attempt of one run, if anything."""
    found = await read_for_runs(tx, {(backend.casefold(), run_id)})
    return next((row for row in reversed(found) if row["run_attempt"] == attempt), None)


def _weight(row: RunStatusRow) -> int:
    """Return how decisive a status is: missing, then not ended, then unconfirmed, then ended."""
    return {"missing": 0, "unconfirmed": 2, "unreadable": 2, "completed": 3}.get(row["status"], 1)


async def record(tx: Transaction, backend: str, run_id: str, attempt: int, status: str) -> None:
    """Record what asking GitHub for a run found when there is no run to record."""
    row = {
        "backend_key": backend.casefold(),
        "run_id": run_id,
        "run_attempt": attempt,
        "status": status,
        "checked_at": tx.now,
    }
    await tx.upsert(oot_run, [row], replaced=("status", "checked_at"))
