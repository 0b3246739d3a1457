"""Statements behind suggestions: where tests were flaky lately, in trusted jobs, and issues that were closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.disabled import issue_text
from bot.ci.disabled.tables import CLOSED, ISSUE
from bot.ci.test_lists.suggestions import Issue, Sample
from bot.ci.test_results.disabled_here import platforms_of
from bot.ci.test_results.job_tables import BASELINE, test_job
from bot.ci.test_results.store import rows as result_rows
from bot.ci.test_results.tables import test_failure

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction

MOST = 20_000  # flaky results looked at, the newest first
BATCH = 500  # titles in one statement
ASSOCIATIONS = ("OWNER", "MEMBER", "COLLABORATOR")  # of authors whose issues may count again
JOB, FAILURE = test_job.c, test_failure.c


async def flaky_samples(
    tx: Transaction, repository_id: int, *, since: int, devices: Collection[str]
) -> list[Sample]:
    """Return where tests were flaky in trusted jobs since a time (epoch milliseconds)."""
    columns = (
        JOB.generation,
        JOB.run_id,
        JOB.job_id,
        JOB.workflow,
        JOB.name,
        JOB.env_id,
        FAILURE.test_id,
        FAILURE.at,
    )
    query = (
        sa.select(*columns)
        .join_from(test_failure, test_job, JOB.generation == FAILURE.generation)
        .where(
            FAILURE.repository_id == repository_id,
            FAILURE.at >= since,
            FAILURE.flaky,
            FAILURE.trusted,
            BASELINE,
        )
    )
    found = await tx.rows(query.order_by(FAILURE.at.desc()).limit(MOST))
    environments = await result_rows.environments_by_id(tx, {row["env_id"] for row in found})
    known = issue_text.PLATFORMS | set(devices)
    words: dict[int, frozenset[str]] = {}
    for row in found:
        if row["generation"] not in words:
            job: Any = row  # a part of a job's row, which is enough
            words[row["generation"]] = known & platforms_of(job, environments.get(row["env_id"]))
    return [
        Sample(
            test_id=row["test_id"],
            generation=row["generation"],
            run_id=row["run_id"],
            job_id=row["job_id"],
            name=row["name"],
            platforms=words[row["generation"]],
            at=row["at"],
        )
        for row in found
    ]


async def closed_issues(
    tx: Transaction, repository_id: int, titles: Collection[str], authors: Collection[str]
) -> dict[str, Issue]:
    """Return the newest closed issue of each of these titles, of people whose issues may count again."""
    trusted = sa.or_(
        ISSUE.author_association.in_(ASSOCIATIONS),
        sa.func.lower(ISSUE.user_login).in_(sorted(login.lower() for login in authors)),
    )
    found: dict[str, Issue] = {}
    wanted = sorted(titles)
    for at in range(0, len(wanted), BATCH):
        query = sa.select(ISSUE.title, ISSUE.number, ISSUE.html_url).where(
            CLOSED,
            ISSUE.repository_id == repository_id,
            ISSUE.title.in_(wanted[at : at + BATCH]),
            ISSUE.number.is_not(None),
            ISSUE.deleted_at.is_(None),
            trusted,
        )
        for row in await tx.run(query.order_by(ISSUE.number)):
            found[row.title] = Issue(str(row.number), row.html_url or "", closed=True)
    return found
