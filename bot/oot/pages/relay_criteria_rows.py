"""Rows behind the relay's criteria: a backend's jobs on pull requests, and the tests that failed in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.oot.results.tables import JobIdentity, JobSubject, JobTests, oot_workflow_job
from bot.oot.statistics.relay_criteria import MeasuredJob
from bot.oot.statistics.store.countable_jobs import COUNTS, flagged

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction

JOB = oot_workflow_job.c
MOST_JOBS = 50_000  # of one backend
MOST_FAILED = 500  # newest jobs whose failed tests are compared


class FailedJobRow(JobIdentity, JobSubject, JobTests):
    """A job that failed, with its failed tests."""


async def measured_jobs(
    tx: Transaction, backend: str, *, since: int, hidden: Collection[str]
) -> list[MeasuredJob]:
    """Return a backend's completed jobs of pull requests, each at its latest attempt, newest first."""
    query = select(MeasuredJob, oot_workflow_job).where(*_of(backend, since, hidden), COUNTS)
    return await tx.fetch(query.order_by(JOB.received_at.desc()).limit(MOST_JOBS))


async def failed_jobs(
    tx: Transaction, backend: str, *, since: int, hidden: Collection[str]
) -> list[FailedJobRow]:
    """Return the newest of these jobs that failed and named the tests that did."""
    query = select(FailedJobRow, oot_workflow_job).where(
        *_of(backend, since, hidden),
        COUNTS,
        JOB.conclusion == "failure",
        JOB.head_sha.is_not(None),
        JOB.failed_tests_json.is_not(None),
    )
    return await tx.fetch(query.order_by(JOB.received_at.desc()).limit(MOST_FAILED))


def _of(backend: str, since: int, hidden: Collection[str]) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        sa.func.lower(JOB.downstream_repo) == backend.casefold(),
        JOB.received_at >= since,
        JOB.status == "completed",
        JOB.pr_number.is_not(None),
        sa.func.lower(JOB.upstream_repo).not_in(sorted(hidden)),
        ~flagged("refused"),
    )
