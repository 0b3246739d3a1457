"""What test results add to the grid: how many tests failed in a job, and which, in the job's cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.trunk import cells, changed_days, stored_cells
from bot.ci.trunk.tables import ci_cell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.db.transaction import Transaction

CELL = ci_cell.c


class JobTests(NamedTuple):
    """The tests that failed in a job of GitHub's.

    `tests` are those of them that are not known to be flaky, one number for a test wherever it runs.
    """

    repository_id: int
    job_id: int
    failed: int
    tests: frozenset[int]


async def write(tx: Transaction, jobs: Iterable[JobTests]) -> None:
    """Write the tests that failed in some jobs into their cells, in place of what was there."""
    for job in jobs:
        of_job = sa.and_(CELL.repository_id == job.repository_id, CELL.job_id == job.job_id)
        values = {"tests_failed": job.failed, "failed_tests": _names(job.tests)}
        differs = sa.or_(*(CELL[name].is_distinct_from(value) for name, value in values.items()))
        shas = (await tx.run(sa.select(CELL.head_sha).where(of_job, differs))).scalars()
        if shas:
            await tx.run(sa.update(ci_cell).where(of_job).values(values))
            await stored_cells.changed(tx, [(job.repository_id, sha) for sha in shas])
            await changed_days.request_of_commits(tx, shas)


def _names(tests: Iterable[int]) -> str | None:
    return cells.joined_tests(f"{test & 0xFFFFFFFFFF:010x}" for test in tests)
