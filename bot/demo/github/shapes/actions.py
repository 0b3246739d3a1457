"""What does GitHub say about workflow runs and jobs?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.demo.github.shapes.accounts import node_id, user
from bot.demo.github.shapes.pull import references
from bot.demo.github.shapes.repository import api_of, head_commit, html_of, named
from bot.demo.github.times import iso

if TYPE_CHECKING:
    from bot.demo.github.state import Repo, Run, Workflow, WorkflowJob
    from bot.demo.github.world import World


def workflow(world: World, repo: Repo, which: Workflow) -> dict[str, Any]:
    """Return a workflow."""
    return {
        "id": which.id,
        "node_id": node_id("Workflow", which.id),
        "name": which.name,
        "path": which.path,
        "state": "active",
        "created_at": iso(which.created_at),
        "updated_at": iso(which.created_at),
        "url": f"{api_of(world, repo)}/actions/workflows/{which.id}",
        "html_url": f"{html_of(world, repo)}/blob/{repo.default_branch}/{which.path}",
        "badge_url": f"{html_of(world, repo)}/workflows/{which.name}/badge.svg",
    }


def run(world: World, which: Run) -> dict[str, Any]:
    """Return a workflow run at its newest attempt."""
    repo, api = which.repo, f"{api_of(world, which.repo)}/actions/runs/{which.id}"
    suite = f"{api_of(world, repo)}/check-suites/{which.suite.id}"
    before = which.run_attempt - 1
    return {
        "id": which.id,
        "name": which.workflow.name,
        "node_id": node_id("WorkflowRun", which.id),
        "head_branch": which.head_branch,
        "head_sha": which.head_sha,
        "path": which.workflow.path,
        "display_title": which.display_title,
        "run_number": which.run_number,
        "event": which.event,
        "status": which.status,
        "conclusion": which.conclusion,
        "workflow_id": which.workflow.id,
        "check_suite_id": which.suite.id,
        "check_suite_node_id": node_id("CheckSuite", which.suite.id),
        "url": api,
        "html_url": f"{html_of(world, repo)}/actions/runs/{which.id}",
        "pull_requests": references(world, repo, which.head_sha),
        "created_at": iso(which.created_at),
        "updated_at": iso(which.updated_at),
        "actor": user(world, which.actor),
        "run_attempt": which.run_attempt,
        "referenced_workflows": [],
        "run_started_at": iso(which.started_at),
        "triggering_actor": user(world, which.actor),
        "jobs_url": f"{api}/jobs",
        "logs_url": f"{api}/logs",
        "check_suite_url": suite,
        "artifacts_url": f"{api}/artifacts",
        "cancel_url": f"{api}/cancel",
        "rerun_url": f"{api}/rerun",
        "previous_attempt_url": f"{api}/attempts/{before}" if before else None,
        "workflow_url": f"{api_of(world, repo)}/actions/workflows/{which.workflow.id}",
        "head_commit": head_commit(repo.commits[which.head_sha]),
        "repository": named(world, repo),
        "head_repository": named(world, repo),
    }


def job(world: World, which: WorkflowJob) -> dict[str, Any]:
    """Return a workflow job; its steps follow from how far it got."""
    of = which.run
    api = api_of(world, of.repo)
    return {
        "id": which.id,
        "run_id": of.id,
        "workflow_name": of.workflow.name,
        "head_branch": of.head_branch,
        "run_url": f"{api}/actions/runs/{of.id}",
        "run_attempt": which.run_attempt,
        "node_id": node_id("CheckRun", which.id),
        "head_sha": of.head_sha,
        "url": f"{api}/actions/jobs/{which.id}",
        "html_url": f"{html_of(world, of.repo)}/actions/runs/{of.id}/job/{which.id}",
        "status": which.status,
        "conclusion": which.conclusion,
        "created_at": iso(which.created_at),
        "started_at": iso(which.started_at),
        "completed_at": iso(which.completed_at),
        "name": which.name,
        "steps": _steps(which),
        "check_run_url": f"{api}/check-runs/{which.id}",
        "labels": list(which.labels),
        "runner_id": 6 if which.runner else None,
        "runner_name": which.runner,
        "runner_group_id": 2 if which.runner else None,
        "runner_group_name": "GitHub Actions" if which.runner else None,
    }


def _steps(which: WorkflowJob) -> list[dict[str, Any]]:
    if which.runner is None:
        return []
    times = {"started_at": iso(which.started_at), "completed_at": iso(which.completed_at)}
    done = {"status": "completed", "conclusion": "success", **times}
    work = {"status": which.status, "conclusion": which.conclusion, **times}
    return [
        {"name": "Set up job", "number": 1, **done, "completed_at": times["started_at"]},
        {"name": "Run tests", "number": 2, **work},
    ]
