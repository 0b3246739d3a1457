"""The tests that failed in jobs of the repository's own CIs on a commit, for the cells of the grid."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.test_results.job_tables import test_job
from bot.ci.test_results.parse.block import FAILING
from bot.ci.test_results.store.rows import JOB
from bot.ci.test_results.tables import test, test_failure
from bot.ci.test_results.verdict import Verdict
from bot.ci.trunk import job_numbers
from bot.ci.trunk.store import job_causes
from bot.ci.trunk.store.job_causes import JobTests

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

F = test_failure.c
ROWS_MOST = 5_000
EXCUSED = (Verdict.FLAKY.value, Verdict.LIKELY_FLAKY.value, Verdict.DISABLED.value)


async def write(tx: Transaction, sha: str) -> None:
    """Write the tests that failed on a commit into the cells of their jobs, once they have been judged."""
    joined = test_failure.join(test_job, JOB.generation == F.generation).join(test, test.c.id == F.test_id)
    query = sa.select(JOB.repository_id, JOB.job_id, JOB.failed + JOB.errors, test.c.canonical, F.verdict)
    query = query.select_from(joined).where(
        F.head_sha == sha,
        JOB.head_sha == sha,
        sa.or_(
            JOB.job_id > 0, JOB.job_id <= job_numbers.LARGEST
        ),  # not those known by an artifact's name only
        JOB.backend.is_(None),
        F.outcome.in_(sorted(FAILING)),
        F.verdict.is_not(None),
    )
    found: defaultdict[tuple[int, int, int], set[int]] = defaultdict(set)
    for repository_id, job_id, failed, canonical, verdict in await tx.run(query.limit(ROWS_MOST)):
        tests = found[repository_id, job_id, failed]
        if verdict not in EXCUSED:
            tests.add(canonical)
    await job_causes.write_tests(tx, [JobTests(*key, frozenset(found[key])) for key in sorted(found)])
