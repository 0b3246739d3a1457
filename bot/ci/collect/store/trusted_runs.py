"""Which stored runs are trusted: the only place where that is decided.

Of a backend's run, what it was dispatched for decides, not who ran it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.collect.settings import CollectSettings, is_trusted_branch
from bot.ci.collect.store import runs
from bot.ci.collect.trust import is_trusted
from bot.db.statements import Statement
from bot.ingest.tables import records
from bot.oot.results.tables import oot_workflow_job

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.rows import WorkflowRunRow
    from bot.oot.results.tables import DispatchRow

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


async def is_trusted_run(tx: Transaction, settings: Settings, run: WorkflowRunRow) -> bool:
    """Whether a run may feed baselines.

    A backend's run that it reported counts for what it was reported on: a push to a trusted branch of upstream, never
    a pull request. One that a dispatch may have started, and of which no report is known, does not count.
    """
    of_run = {"of_run": str(run["id"]), "of_attempt": run["run_attempt"], "of_repo": run["repo"].lower()}
    if reported := (await tx.run(REPORTED_ON, of_run)).all():
        one = reported[0]
        about_one = len(reported) == 1 and one.pr_number is None and one.head_sha is not None
        return about_one and await _was_pushed(tx, settings, one.upstream_repo, one.head_sha)
    if run["event"] in BY_US and not settings.is_upstream(run["repo"]):
        return False
    if await is_of_tag(tx, run):
        return False
    facts = await runs.repository_facts(tx, run["repository_id"])
    patterns = settings.of(CollectSettings).ci_trusted_branches
    return is_trusted(run, default_branch=facts.default_branch, patterns=patterns)


async def is_of_tag(tx: Transaction, run: WorkflowRunRow) -> bool:
    """Whether a run may be a tag's that is named like a branch: GitHub calls both its branch.

    It is the branch's where its commit was pushed to the branch.
    """
    refs = sa.select(PUSH.ref).where(PUSH.repository_id == run["repository_id"]).limit(1)
    branch = refs.where(PUSH.after == run["head_sha"], PUSH.ref == f"{HEADS}{run['head_branch']}")
    if (await tx.run(branch)).scalar() is not None:
        return False
    return (await tx.run(refs.where(PUSH.ref == f"{TAGS}{run['head_branch']}"))).scalar() is not None


async def is_trusted_dispatch(tx: Transaction, settings: Settings, dispatch: DispatchRow | None) -> bool:
    """Whether what a dispatch had tested may feed baselines: a push to a trusted branch, never a pull request."""
    if dispatch is None or dispatch["pr_number"] is not None or not dispatch["head_sha"]:
        return False
    return await _was_pushed(tx, settings, dispatch["upstream_repo"], dispatch["head_sha"])


async def _was_pushed(tx: Transaction, settings: Settings, repo: str, sha: str) -> bool:
    """Whether a commit was the head of a push to a trusted branch of a repository."""
    of_commit = sa.select(PUSH.repository_id, PUSH.ref).where(
        PUSH.after == sha, sa.func.lower(PUSH.repo) == repo.lower(), PUSH.ref.startswith(HEADS)
    )
    patterns = settings.of(CollectSettings).ci_trusted_branches
    for row in (await tx.run(of_commit.limit(20))).all():
        facts = await runs.repository_facts(tx, row.repository_id)
        branch = row.ref.removeprefix(HEADS)
        if is_trusted_branch(branch, default_branch=facts.default_branch, patterns=patterns):
            return True
    return False
