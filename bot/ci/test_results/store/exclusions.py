"""The receiver of files of tests that a job left out on purpose, and what they usually would have run."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.collect.receiving import Receiver
from bot.ci.test_results.job_tables import BASELINE, JOB_KEY
from bot.ci.test_results.parse.names import without_ending
from bot.ci.test_results.parse.parsed import EXCLUSIONS, LeftOut
from bot.ci.test_results.store.rows import JOB
from bot.ci.test_results.tables import test_class, test_exclusion, test_summary

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.ci.collect.receiving import Fetched
    from bot.ci.test_results.job_tables import TestJobRow
    from bot.context import Context
    from bot.db.transaction import Transaction

JOBS_MOST = 300  # of the runs that say what is usual
ROWS_MOST = 50_000
EXCLUSION, SUMMARY = test_exclusion.c, test_summary.c
KEY = [EXCLUSION[name] for name in JOB_KEY]


async def store(
    tx: Transaction, _context: Context, fetched: Fetched, found: LeftOut, _blob: str | None
) -> None:
    """Note what a job left out; of files that belong to no job, it is unknown which tests are missed."""
    if fetched.job_id is None:
        return
    row = {
        "repository_id": fetched.repository_id,
        "run_id": fetched.run_id,
        "run_attempt": fetched.run_attempt,
        "job_id": fetched.job_id,
        "object_id": fetched.object_id,
    }
    values = {"files": found.files, "received_at": tx.now}
    await tx.upsert(test_exclusion, [row | values], replaced=list(values))
    tx.note_changed("test_exclusion", [row])


async def files_of(tx: Transaction, jobs: Sequence[TestJobRow]) -> set[str]:
    """Return the files that some jobs left out."""
    keys = [(job["repository_id"], job["run_id"], job["run_attempt"], job["job_id"]) for job in jobs]
    found = await tx.run(sa.select(EXCLUSION.files).where(tx.among(KEY, keys)))
    return {file for files in found.scalars() for file in files}


async def usual_tests(
    tx: Transaction, repository_id: int, family: str, files: Collection[str], *, before: int, runs: int
) -> int:
    """Return how many tests of some files a family of jobs usually runs: the median of its newest trusted runs."""
    of_family = (
        sa.select(JOB.generation, JOB.run_id, JOB.run_attempt)
        .where(BASELINE, JOB.repository_id == repository_id, JOB.family == family, JOB.at < before)
        .order_by(JOB.at.desc(), JOB.generation)
        .limit(JOBS_MOST)
    )
    by_run: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in await tx.run(of_family):
        by_run[row.run_id, row.run_attempt].append(row.generation)
    newest = list(by_run.values())[:runs]
    counts = []
    for generations in newest:
        query = (
            sa.select(test_class.c.file, SUMMARY.invoking_file, SUMMARY.tests - SUMMARY.skipped)
            .select_from(test_summary.join(test_class, test_class.c.id == SUMMARY.class_id))
            .where(SUMMARY.generation.in_(generations))
        )
        found = (await tx.run(query.limit(ROWS_MOST))).all()
        counts.append(
            sum(
                ran
                for file, invoking, ran in found
                if without_ending(file) in files or without_ending(invoking) in files
            )
        )
    return round(median(counts)) if counts else 0


RECEIVER = Receiver(store=store, answer=LeftOut, members=EXCLUSIONS)
