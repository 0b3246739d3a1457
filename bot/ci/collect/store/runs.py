"""Statements about the runs and jobs that are collected, and what is known of their repositories."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.ingest.rows import WorkflowJobRow, WorkflowRunRow
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bot.db.transaction import Transaction

RUN, JOB, REPOSITORY = records["workflow_run"], records["workflow_job"], records["repository"]
OF_REPOSITORY: sa.BindParameter[int] = sa.bindparam("of_repository")
OF_RUN: sa.BindParameter[int] = sa.bindparam("of_run")
OF_ATTEMPT: sa.BindParameter[int] = sa.bindparam("of_attempt")
# put together once, since they run for every run and job that is collected
ATTEMPT = RowStatement(select(WorkflowRunRow, RUN).where(RUN.c.id == OF_RUN, RUN.c.run_attempt == OF_ATTEMPT))
STARTS = Statement(
    sa.select(RUN.c.run_attempt, RUN.c.run_started_at).where(
        RUN.c.id == OF_RUN, RUN.c.repository_id == OF_REPOSITORY
    )
)
JOBS = RowStatement(
    select(WorkflowJobRow, JOB)
    .where(JOB.c.run_id == OF_RUN, JOB.c.repository_id == OF_REPOSITORY)
    .order_by(JOB.c.id)
)
FACTS = Statement(
    sa.select(REPOSITORY.c.private, REPOSITORY.c.default_branch).where(
        REPOSITORY.c.repository_id == OF_REPOSITORY
    )
)


class RepositoryFacts(NamedTuple):
    """What is known of a repository."""

    private: bool | None = None
    default_branch: str | None = None


async def has_rows(tx: Transaction, repository_id: sa.Column[int], owners: Collection[int]) -> bool:
    """Whether a table has a row of one of some repositories; the column is that of its repository."""
    found = sa.select(sa.exists().where(repository_id.in_(sorted(owners))))
    return bool(owners) and bool((await tx.run(found)).scalar())


async def find_attempt(tx: Transaction, run_id: int, attempt: int) -> WorkflowRunRow | None:
    """Return an attempt of a run: GitHub's ids are unique across repositories."""
    return await tx.fetch_first(ATTEMPT, {"of_run": run_id, "of_attempt": attempt})


async def attempt_starts(tx: Transaction, repository_id: int, run_id: int) -> dict[int, int | None]:
    """Return when each known attempt of a run began."""
    found = await tx.run(STARTS, {"of_run": run_id, "of_repository": repository_id})
    return {row.run_attempt: row.run_started_at for row in found.all()}


async def attempts_of_run(tx: Transaction, owners: Collection[int], run_id: int) -> list[WorkflowRunRow]:
    """Return the attempts of a run of one of some repositories, newest first."""
    query = select(WorkflowRunRow, RUN).where(RUN.c.repository_id.in_(sorted(owners)), RUN.c.id == run_id)
    return await tx.fetch(query.order_by(RUN.c.run_attempt.desc()))


async def find_named_job(tx: Transaction, repo: str, job_id: int) -> WorkflowJobRow | None:
    """Return a job by the repository's name as its record spells it, in any case."""
    query = select(WorkflowJobRow, JOB).where(JOB.c.id == job_id, sa.func.lower(JOB.c.repo) == repo.lower())
    return await tx.fetch_first(query)


async def find_job(tx: Transaction, owners: Collection[int], job_id: int) -> WorkflowJobRow | None:
    """Return a job of one of some repositories."""
    query = select(WorkflowJobRow, JOB).where(JOB.c.repository_id.in_(sorted(owners)), JOB.c.id == job_id)
    return await tx.fetch_first(query)


async def jobs_of_run(tx: Transaction, repository_id: int, run_id: int) -> list[WorkflowJobRow]:
    """Return the jobs of all attempts of a run."""
    return await tx.fetch(JOBS, {"of_run": run_id, "of_repository": repository_id})


async def repository_facts(tx: Transaction, repository_id: int) -> RepositoryFacts:
    """Return what is known of a repository; nothing is, where it has no record."""
    row = (await tx.run(FACTS, {"of_repository": repository_id})).one_or_none()
    return RepositoryFacts(*row) if row else RepositoryFacts()


async def repository_names(tx: Transaction) -> dict[int, str]:
    """Return the full names of all known repositories by id."""
    columns = REPOSITORY.c
    found = await tx.run(sa.select(columns.repository_id, columns.full_name))
    return {row.repository_id: row.full_name for row in found}


def attempts_from_jobs(jobs: Iterable[WorkflowJobRow], run_id: int) -> list[WorkflowRunRow]:
    """Return the attempts of a run of which only jobs are known, newest first, for its own event never came.

    How they ended is not known: that is for GitHub to say.
    """
    first_of: dict[int, WorkflowJobRow] = {}
    for job in sorted(jobs, key=lambda one: one["id"]):
        first_of.setdefault(job["run_attempt"] or 1, job)
    return [_attempt(first_of[number], run_id, number) for number in sorted(first_of, reverse=True)]


def _attempt(job: WorkflowJobRow, run_id: int, number: int) -> WorkflowRunRow:
    url = job["html_url"] or ""
    return {
        "repository_id": job["repository_id"],
        "repo": job["repo"],
        "received_at": job["received_at"],
        "id": run_id,
        "run_attempt": number,
        "node_id": None,
        "name": job["workflow_name"],
        "display_title": None,
        "path": None,
        "event": None,
        "status": None,
        "conclusion": None,
        "workflow_id": None,
        "check_suite_id": None,
        "run_number": None,
        "head_branch": job["head_branch"],
        "head_sha": job["head_sha"],
        "head_repository_full_name": None,
        "head_repository_id": None,
        "actor_login": None,
        "triggering_actor_login": None,
        "pull_requests": None,
        "html_url": url.partition("/job/")[0] or None,
        "created_at": None,
        "updated_at": None,
        "run_started_at": None,
    }
