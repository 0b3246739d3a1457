"""What is there of one commit? Upstream's own jobs and checks, and what backends said without a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.job_reads import WITHOUT_TESTS, whole
from bot.store.tables import oot_dispatch, oot_workflow_job, records

if TYPE_CHECKING:
    from bot.store.transaction import Transaction

Row = dict[str, Any]
JOB, TOLD = oot_workflow_job.c, oot_dispatch.c
RUN, CHECK = records["workflow_job"].c, records["check_run"].c


async def own_jobs(tx: Transaction, repo: str, sha: str, *, limit: int) -> list[Row]:
    """Return the repository's own newest workflow jobs on a commit, every attempt, as first heard of."""
    columns = (
        RUN.id, RUN.workflow_name, RUN.name, RUN.run_id, RUN.run_attempt, RUN.status, RUN.conclusion, RUN.html_url,
        RUN.created_at, RUN.started_at, RUN.completed_at,
    )  # fmt: skip
    query = sa.select(*columns).where(
        RUN.head_sha == sha, sa.func.lower(RUN.repo) == repo.lower(), RUN.deleted_at.is_(None)
    )
    return (await tx.rows(query.order_by(RUN.received_at.desc(), RUN.id.desc()).limit(limit)))[::-1]


async def own_checks(tx: Transaction, repo: str, sha: str, *, limit: int) -> list[Row]:
    """Return the newest check runs on a commit, ours and those of workflow jobs included, as first heard of."""
    columns = (
        CHECK.id, CHECK.name, CHECK.app_id, CHECK.app_slug, CHECK.status, CHECK.conclusion, CHECK.html_url,
        CHECK.output_title, CHECK.started_at, CHECK.completed_at,
    )  # fmt: skip
    query = sa.select(*columns).where(
        CHECK.head_sha == sha, sa.func.lower(CHECK.repo) == repo.lower(), CHECK.deleted_at.is_(None)
    )
    return (await tx.rows(query.order_by(CHECK.received_at.desc(), CHECK.id.desc()).limit(limit)))[::-1]


async def jobs(tx: Transaction, repo: str, sha: str, *, limit: int) -> list[Row]:
    """Return the newest of what backends reported on a commit that is no pull request's head, as first heard of.

    `sha` may be its beginning.
    """
    query = WITHOUT_TESTS.where(
        *_begins(JOB.head_sha, sha), sa.func.lower(JOB.upstream_repo) == repo.lower(), JOB.pr_number.is_(None)
    )
    order = (JOB.received_at.desc(), JOB.run_attempt.desc(), JOB.job_key.desc())
    return (await whole(tx, query.order_by(*order).limit(limit)))[::-1]


async def dispatches(tx: Transaction, repo: str, sha: str, *, limit: int) -> list[Row]:
    """Return what was dispatched for a pushed commit, the newest of it, oldest first."""
    query = sa.select(oot_dispatch).where(
        *_begins(TOLD.head_sha, sha),
        sa.func.lower(TOLD.upstream_repo) == repo.lower(),
        TOLD.pr_number.is_(None),
    )
    return (await tx.rows(query.order_by(TOLD.created_at.desc(), TOLD.id.desc()).limit(limit)))[::-1]


async def full_sha(tx: Transaction, repo: str, sha: str) -> str | None:
    """Return the whole SHA of a commit that anything of ours is about, given how it begins."""
    push = records["push"].c
    for column, name in (
        (TOLD.head_sha, TOLD.upstream_repo), (JOB.head_sha, JOB.upstream_repo), (RUN.head_sha, RUN.repo),
        (CHECK.head_sha, CHECK.repo),
    ):  # fmt: skip
        query = sa.select(column.label("sha")).where(
            *_begins(column, sha), sa.func.lower(name) == repo.lower()
        )
        if found := await tx.row(query.limit(1)):
            return str(found["sha"])
    pushed = sa.select(push.after).where(push.after == sha, sa.func.lower(push.repo) == repo.lower())
    found = await tx.row(pushed.limit(1))
    return str(found["after"]) if found else None


def _begins(column: sa.Column[Any], sha: str) -> tuple[sa.ColumnElement[bool], ...]:
    return column >= sha, column < sha + "g"  # the first letter after the digits of a SHA
