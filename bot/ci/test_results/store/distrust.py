"""Jobs that were stored as trusted and are not: backends' results of pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.test_results.job_tables import test_job
from bot.ci.test_results.store import count_days, requests
from bot.ci.test_results.store.rows import JOB, JOBS, tested
from bot.ci.test_results.tables import test_failure

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

MOST = 200  # jobs at a time
OF_PULLS = sa.and_(JOB.trusted, JOB.backend.is_not(None), JOB.pr_number.is_not(None))


async def distrust_pulls(tx: Transaction) -> None:
    """Take such jobs out of baselines, daily sums and verdicts, as far as these were made of them."""
    jobs = await tx.fetch(JOBS.where(OF_PULLS).order_by(JOB.at).limit(MOST))
    if not jobs:
        return
    generations = [job["generation"] for job in jobs]
    for table in (test_job, test_failure):
        await tx.run(sa.update(table).where(table.c.generation.in_(generations)).values(trusted=False))
    for repository_id in sorted({job["repository_id"] for job in jobs}):
        count_days.request(tx, repository_id)
    requests.request_verdicts(tx, sorted({tested(job) for job in jobs}))
