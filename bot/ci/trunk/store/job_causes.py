"""Why a job failed, written into its cell: what its log says, how many of its tests failed, and which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from bot.ci.trunk import cells, job_numbers
from bot.ci.trunk.store import changed_days, stored_cells
from bot.ci.trunk.tables import ci_cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.db.transaction import Transaction

LINE_MOST = 300  # characters: grids read many thousands of cells
CELL = ci_cell.c


class JobTests(NamedTuple):
    """The tests that failed in a job of GitHub's.

    `tests` are those of them that are not known to be flaky, one number for a test wherever it runs.
    """

    repository_id: int
    job_id: int
    total: int
    tests: frozenset[int]


async def write_line(
    tx: Transaction, repository_id: int, job_id: int, *, kind: str, signature: str | None, line: str | None
) -> None:
    """Write why a job failed into its cell, in place of what was there; None and kind `none` where no rule says.

    Of a job that ran elsewhere what its CI said stays where no rule says more.
    """
    if signature is None and job_numbers.is_elsewhere(job_id):
        return
    values = {"failure_kind": kind, "signature": signature, "line": line and line[:LINE_MOST]}
    await _write(tx, repository_id, job_id, values)


async def write_tests(tx: Transaction, jobs: Iterable[JobTests]) -> None:
    """Write the tests that failed in some jobs into their cells, in place of what was there."""
    for job in jobs:
        values = {"tests_failed": job.total, "failed_tests": _names(job.tests)}
        differs = sa.or_(*(CELL[name].is_distinct_from(value) for name, value in values.items()))
        await _write(tx, job.repository_id, job.job_id, values, where=differs)


async def _write(
    tx: Transaction,
    repository_id: int,
    job_id: int,
    values: Mapping[str, Any],
    *,
    where: sa.ColumnElement[bool] | None = None,
) -> None:
    of_job = sa.and_(CELL.repository_id == repository_id, CELL.job_id == job_id)
    query = sa.select(CELL.head_sha).where(of_job)
    shas = (await tx.run(query if where is None else query.where(where))).scalars()
    if shas:
        await tx.run(sa.update(ci_cell).where(of_job).values(**values))
        await stored_cells.forget(tx, [(repository_id, sha) for sha in shas])
        await changed_days.request_of_commits(tx, shas)


def _names(tests: Iterable[int]) -> str | None:
    return cells.joined_tests(f"{test & 0xFFFFFFFFFF:010x}" for test in tests)
