"""What logs add to the grid: why a job failed, in the job's cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk import changed_days, stored_cells
from bot.ci.trunk.tables import ci_cell

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

LINE_MOST = 300  # characters: grids read many thousands of cells
CELL = ci_cell.c


async def write(
    tx: Transaction, repository_id: int, job_id: int, *, kind: str, signature: str | None, line: str | None
) -> None:
    """Write why a job failed into its cell, in place of what was there; None and kind `none` where no rule says."""
    of_job = sa.and_(CELL.repository_id == repository_id, CELL.job_id == job_id)
    values = {"failure_kind": kind, "signature": signature, "line": line and line[:LINE_MOST]}
    shas = (await tx.run(sa.select(CELL.head_sha).where(of_job))).scalars()
    if shas:
        await tx.run(sa.update(ci_cell).where(of_job).values(values))
        await stored_cells.changed(tx, [(repository_id, sha) for sha in shas])
        await changed_days.request_of_commits(tx, shas)
