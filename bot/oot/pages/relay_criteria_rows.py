"""Rows behind the relay's criteria: a backend's jobs on pull requests, and failures upstream's own jobs share."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.ci.test_results.job_tables import test_job
from bot.ci.test_results.parse.block import FAILING
from bot.ci.test_results.store.rows import PROVEN
from bot.ci.test_results.tables import test, test_class, test_failure
from bot.oot.results.tables import oot_workflow_job
from bot.oot.statistics.relay_criteria import MeasuredJob
from bot.oot.statistics.store.countable_jobs import COUNTS, flagged

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction

JOB, FAILURE, TEST_JOB = oot_workflow_job.c, test_failure.c, test_job.c
MOST_JOBS = 50_000  # of one backend
MOST_FAILED = 500  # newest jobs whose failed tests are compared
SHAS_PER_QUERY = 100


class FailedJob(TypedDict):
    """A job that failed, with its failed tests."""

    job_key: str
    head_sha: str | None
    failed_tests: int | None
    failed_tests_json: list[dict[str, object]] | None


async def measured_jobs(
    tx: Transaction, backend: str, *, since: int, hidden: Collection[str]
) -> list[MeasuredJob]:
    """Return a backend's completed jobs of pull requests, each at its latest attempt, newest first."""
    columns = [JOB[name] for name in MeasuredJob.__annotations__]
    query = sa.select(*columns).where(*_of(backend, since, hidden), COUNTS)
    return await tx.rows_as(MeasuredJob, query.order_by(JOB.received_at.desc()).limit(MOST_JOBS))


async def failed_jobs(
    tx: Transaction, backend: str, *, since: int, hidden: Collection[str]
) -> list[FailedJob]:
    """Return the newest of these jobs that failed and named the tests that did."""
    columns = [JOB[name] for name in FailedJob.__annotations__]
    query = sa.select(*columns).where(
        *_of(backend, since, hidden),
        COUNTS,
        JOB.conclusion == "failure",
        JOB.head_sha.is_not(None),
        JOB.failed_tests_json.is_not(None),
    )
    return await tx.rows_as(FailedJob, query.order_by(JOB.received_at.desc()).limit(MOST_FAILED))


async def failed_upstream(tx: Transaction, shas: Collection[str]) -> dict[str, list[tuple[str, str]]]:
    """Return suite and name of the tests that failed in the repository's own jobs on each commit."""
    joined = (
        test_failure.join(test_job, TEST_JOB.generation == FAILURE.generation)
        .join(test, test.c.id == FAILURE.test_id)
        .join(test_class, test_class.c.id == test.c.class_id)
    )
    found: dict[str, list[tuple[str, str]]] = {}
    wanted = sorted(shas)
    for start in range(0, len(wanted), SHAS_PER_QUERY):
        query = sa.select(FAILURE.head_sha, test_class.c.suite, test.c.name).select_from(joined)
        query = query.where(
            FAILURE.head_sha.in_(wanted[start : start + SHAS_PER_QUERY]),
            FAILURE.outcome.in_(sorted(FAILING)),
            TEST_JOB.backend.is_(None),
            PROVEN,
        )
        for sha, suite, name in await tx.run(query):
            found.setdefault(sha, []).append((suite, name))
    return found


def _of(backend: str, since: int, hidden: Collection[str]) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        sa.func.lower(JOB.downstream_repo) == backend.casefold(),
        JOB.received_at >= since,
        JOB.status == "completed",
        JOB.pr_number.is_not(None),
        sa.func.lower(JOB.upstream_repo).not_in(sorted(hidden)),
        ~flagged("refused"),
    )
