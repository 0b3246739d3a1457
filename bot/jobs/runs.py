"""Runs and jobs as their records have them, which runs are trusted, and what a pull request is compared with.

Absence of data is never trust.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.ingest.record_rows import WorkflowJobRow, WorkflowRunRow
from bot.ingest.tables import records
from bot.jobs.settings import CollectSettings, is_trusted_branch
from bot.oot.results.tables import oot_workflow_job
from bot.oot.verdict import comparison as verdict_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.results.tables import DispatchRow

OWN_EVENTS = frozenset({"push", "schedule", "workflow_dispatch", "merge_group"})
# begins the branch of a merge group: gh-readonly-queue/{base}/pr-{n}-{sha}
MERGE_QUEUE = "gh-readonly-queue/"
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
HEADS, TAGS = "refs/heads/", "refs/tags/"
BY_US = frozenset({"repository_dispatch", "workflow_dispatch"})  # events of the runs that a dispatch starts
PUSH, REPORTED = records["push"].c, oot_workflow_job.c

REPORTED_ON = (  # what a backend's run is about, as it says
    Statement(
        sa.select(REPORTED.upstream_repo, REPORTED.head_sha, REPORTED.pr_number)
        .where(
            REPORTED.run_id == sa.bindparam("of_run"),
            REPORTED.run_attempt == sa.bindparam("of_attempt"),
            sa.func.lower(REPORTED.downstream_repo) == sa.bindparam("of_repo"),
        )
        .distinct()
        .limit(2)
    )
)
PULLS_MOST = 10  # that share a head
HEAD = records["pull_head"].c


class RepositoryFacts(NamedTuple):
    """What is known of a repository."""

    private: bool | None = None
    default_branch: str | None = None


class MergeTarget(NamedTuple):
    """Where a commit is to be merged."""

    branch: str  # the default branch where no pull request says otherwise; empty where that is not known
    commits: frozenset[str]  # the merge base, and the branch's head when the commit was pushed


def is_trusted(run: WorkflowRunRow, *, default_branch: str | None, patterns: Sequence[str]) -> bool:
    """Whether GitHub says that a run is the repository's own, on a trusted branch.

    A fork may call its branch `main`: the head repository has to be this one, by id, since names change hands.
    """
    if run["head_repository_id"] is None or run["head_repository_id"] != run["repository_id"]:
        return False
    if run["event"] not in OWN_EVENTS or not run["head_branch"]:
        return False
    branch = _queue_base(run["head_branch"]) if run["event"] == "merge_group" else run["head_branch"]
    return branch is not None and is_trusted_branch(branch, default_branch=default_branch, patterns=patterns)


async def has_rows(tx: Transaction, repository_id: sa.Column[int], owners: Collection[int]) -> bool:
    """Whether a table has a row of one of some repositories; the column is that of its repository."""
    query = sa.select(sa.exists().where(repository_id.in_(sorted(owners))))
    return bool(owners) and bool((await tx.run(query)).scalar())


async def find_attempt(tx: Transaction, run_id: int, attempt: int) -> WorkflowRunRow | None:
    """Return an attempt of a run: GitHub's ids are unique across repositories."""
    return await tx.fetch_first(ATTEMPT, {"of_run": run_id, "of_attempt": attempt})


async def attempt_starts(tx: Transaction, repository_id: int, run_id: int) -> dict[int, int | None]:
    """Return when each known attempt of a run began."""
    rows = await tx.run(STARTS, {"of_run": run_id, "of_repository": repository_id})
    return {row.run_attempt: row.run_started_at for row in rows.all()}


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
    """Return what is known of a repository: nothing, where it has no record."""
    row = (await tx.run(FACTS, {"of_repository": repository_id})).one_or_none()
    return RepositoryFacts(*row) if row else RepositoryFacts()


async def repository_names(tx: Transaction) -> dict[int, str]:
    """Return the full names of all known repositories by id."""
    columns = REPOSITORY.c
    rows = await tx.run(sa.select(columns.repository_id, columns.full_name))
    return {row.repository_id: row.full_name for row in rows}


def attempts_from_jobs(jobs: Iterable[WorkflowJobRow], run_id: int) -> list[WorkflowRunRow]:
    """Return the attempts of a run that is known by its jobs only, since its own event never came; newest first.

    How they ended is unknown: only GitHub can say.
    """
    first_of: dict[int, WorkflowJobRow] = {}
    for job in sorted(jobs, key=lambda row: row["id"]):
        first_of.setdefault(job["run_attempt"] or 1, job)
    return [_attempt(first_of[number], run_id, number) for number in sorted(first_of, reverse=True)]


async def is_trusted_run(tx: Transaction, settings: Settings, run: WorkflowRunRow) -> bool:
    """Whether a run may feed baselines.

    A run that a backend reported counts for what it was reported on: a push to a trusted branch of upstream, never
    a pull request. One that a dispatch may have started, but that no report names, does not count.
    """
    of_run = {"of_run": str(run["id"]), "of_attempt": run["run_attempt"], "of_repo": run["repo"].lower()}
    if reported := (await tx.run(REPORTED_ON, of_run)).all():
        report = reported[0]
        about_one = len(reported) == 1 and report.pr_number is None and report.head_sha is not None
        return about_one and await _was_pushed(tx, settings, report.upstream_repo, report.head_sha)
    if run["event"] in BY_US and not settings.is_upstream(run["repo"]):
        return False
    if await is_of_tag(tx, run):
        return False
    facts = await repository_facts(tx, run["repository_id"])
    patterns = settings.of(CollectSettings).ci_trusted_branches
    return is_trusted(run, default_branch=facts.default_branch, patterns=patterns)


async def is_of_tag(tx: Transaction, run: WorkflowRunRow) -> bool:
    """Whether a run may be that of a tag named like a branch: GitHub gives either as the run's branch.

    It is the branch's if its commit was pushed to the branch.
    """
    refs = sa.select(PUSH.ref).where(PUSH.repository_id == run["repository_id"]).limit(1)
    branch = refs.where(PUSH.after == run["head_sha"], PUSH.ref == f"{HEADS}{run['head_branch']}")
    if (await tx.run(branch)).scalar() is not None:
        return False
    return (await tx.run(refs.where(PUSH.ref == f"{TAGS}{run['head_branch']}"))).scalar() is not None


async def is_trusted_dispatch(tx: Transaction, settings: Settings, dispatch: DispatchRow | None) -> bool:
    """Whether what a dispatch tested may feed baselines: a push to a trusted branch may, a pull request never."""
    if dispatch is None or dispatch["pr_number"] is not None or not dispatch["head_sha"]:
        return False
    return await _was_pushed(tx, settings, dispatch["upstream_repo"], dispatch["head_sha"])


async def find_merge_target(
    tx: Transaction, settings: Settings, repo: str, repository_ids: Collection[int], sha: str
) -> MergeTarget:
    """Return where a commit is to be merged; only pull requests to trusted branches count."""
    of_head = sa.select(HEAD.base_ref, HEAD.base_sha).where(
        HEAD.repository_id.in_(sorted(repository_ids)), HEAD.head_sha == sha
    )
    pulls = (await tx.run(of_head.order_by(HEAD.number).limit(PULLS_MOST))).all()
    facts = [await repository_facts(tx, identifier) for identifier in sorted(repository_ids)]
    default = next((repository.default_branch for repository in facts if repository.default_branch), None)
    patterns = settings.of(CollectSettings).ci_trusted_branches
    trusted = [
        pull for pull in pulls
        if pull.base_ref and is_trusted_branch(pull.base_ref, default_branch=default, patterns=patterns)
    ]  # fmt: skip
    branch = next((pull.base_ref for pull in trusted), default) or ""
    commits = {pull.base_sha for pull in trusted}
    if trusted:
        known = await verdict_rows.read_merge_bases(tx, repo, [sha], base_ref=branch)
        commits |= {base.sha for base in known.values()}
    return MergeTarget(branch, frozenset(commit for commit in commits if commit))


def _queue_base(branch: str) -> str | None:
    """Return the base branch in a merge group's branch name."""
    base, slash, last = branch.removeprefix(MERGE_QUEUE).rpartition("/")
    return base if branch.startswith(MERGE_QUEUE) and slash and last.startswith("pr-") else None


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


async def _was_pushed(tx: Transaction, settings: Settings, repo: str, sha: str) -> bool:
    """Whether a commit was the head of a push to a trusted branch of a repository."""
    of_commit = sa.select(PUSH.repository_id, PUSH.ref).where(
        PUSH.after == sha, sa.func.lower(PUSH.repo) == repo.lower(), PUSH.ref.startswith(HEADS)
    )
    patterns = settings.of(CollectSettings).ci_trusted_branches
    for row in (await tx.run(of_commit.limit(20))).all():
        facts = await repository_facts(tx, row.repository_id)
        branch = row.ref.removeprefix(HEADS)
        if is_trusted_branch(branch, default_branch=facts.default_branch, patterns=patterns):
            return True
    return False
