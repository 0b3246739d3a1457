"""A run of which only jobs are known, for its own event never came: what can be said of its attempts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.ingest.rows import WorkflowJobRow, WorkflowRunRow


def attempts(jobs: Iterable[WorkflowJobRow], run_id: int) -> list[WorkflowRunRow]:
    """Return a run's attempts, newest first, as far as their jobs tell: how they ended is GitHub's to say."""
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
