"""Rows of earlier versions: jobs that were trusted wrongly, and reports that were read by other rules."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.collect.keys import object_key
from bot.ci.collect.store import fetches
from bot.ci.collect.tables import ci_artifact
from bot.ci.test_results.job_tables import test_job
from bot.ci.test_results.parse.parsed import RULES
from bot.ci.test_results.store import count_days, requests
from bot.ci.test_results.store.rows import JOB, JOBS, tested
from bot.ci.test_results.tables import test_failure, test_part
from bot.ingest.tables import records

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

DISTRUSTED_MOST = 200  # jobs at a time
OF_PULLS = sa.and_(JOB.trusted, JOB.backend.is_not(None), JOB.pr_number.is_not(None))
READ_MOST = 100  # artifacts at a time: each is a call to GitHub
PART, ARTIFACT, RUN = test_part.c, ci_artifact.c, records["workflow_run"].c


async def distrust_pulls(tx: Transaction) -> None:
    """Take backends' results of pull requests out of baselines, daily sums and verdicts."""
    jobs = await tx.fetch(JOBS.where(OF_PULLS).order_by(JOB.at).limit(DISTRUSTED_MOST))
    if not jobs:
        return
    generations = [job["generation"] for job in jobs]
    for table in (test_job, test_failure):
        await tx.run(sa.update(table).where(table.c.generation.in_(generations)).values(trusted=False))
    for repository_id in sorted({job["repository_id"] for job in jobs}):
        count_days.request(tx, repository_id)
    requests.request_verdicts(tx, sorted({tested(job) for job in jobs}))


async def request_reading(tx: Transaction) -> None:
    """Have some artifacts of reports fetched and read again, each once."""
    of_run = sa.and_(
        RUN.repository_id == PART.repository_id, RUN.id == PART.run_id, RUN.run_attempt == PART.run_attempt
    )
    same = sa.and_(ARTIFACT.repository_id == PART.repository_id, ARTIFACT.id == PART.object_id)
    query = (
        sa.select(PART.repository_id, PART.object_id, RUN.repo)
        .select_from(test_part.join(ci_artifact, same).join(records["workflow_run"], of_run))
        .where(
            PART.rules < RULES,
            PART.kind == "junit",
            ~ARTIFACT.expired,
            sa.func.coalesce(ARTIFACT.expires_at, tx.now + 1) > tx.now,
        )
        .order_by(PART.received_at.desc(), PART.object_id)
        .limit(READ_MOST)
    )
    by_repository: dict[int, list[int]] = defaultdict(list)
    for repository_id, object_id, repo in (await tx.run(query)).all():
        by_repository[repository_id].append(object_id)
        tx.enqueue("collect", object_key(repo, object_id))
    for repository_id, ids in by_repository.items():
        await fetches.retry_fetches(tx, repository_id, "artifact", ids)
        read = (PART.repository_id == repository_id, PART.object_id.in_(ids))
        await tx.run(sa.update(test_part).where(*read).values(rules=RULES))
