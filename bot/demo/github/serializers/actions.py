"""JSON of workflows, workflow runs and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.demo.github.serializers.pull import references
from bot.demo.github.serializers.repository import api_of, app, head_commit, html_of, named, node_id, user
from bot.demo.github.times import iso

if TYPE_CHECKING:
    from bot.demo.github.models import Artifact, Repo, Run, Workflow, WorkflowJob
    from bot.demo.github.state import GitHubState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.demo.github.models import CheckRun, CheckSuite
    from bot.demo.github.state import GitHubState


def workflow(state: GitHubState, repo: Repo, which: Workflow) -> dict[str, Any]:
    """Return a workflow."""
    return {
        "id": which.id,
        "node_id": node_id("Workflow", which.id),
        "name": which.name,
        "path": which.path,
        "state": "active",
        "created_at": iso(which.created_at),
        "updated_at": iso(which.created_at),
        "url": f"{api_of(state, repo)}/actions/workflows/{which.id}",
        "html_url": f"{html_of(state, repo)}/blob/{repo.default_branch}/{which.path}",
        "badge_url": f"{html_of(state, repo)}/workflows/{which.name}/badge.svg",
    }


def serialize_run(state: GitHubState, which: Run) -> dict[str, Any]:
    """Return a workflow run at its newest attempt."""
    repo, api = which.repo, f"{api_of(state, which.repo)}/actions/runs/{which.id}"
    suite = f"{api_of(state, repo)}/check-suites/{which.suite.id}"
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
        "html_url": f"{html_of(state, repo)}/actions/runs/{which.id}",
        "pull_requests": references(state, repo, which.head_sha),
        "created_at": iso(which.created_at),
        "updated_at": iso(which.updated_at),
        "actor": user(state, which.actor),
        "run_attempt": which.run_attempt,
        "referenced_workflows": [],
        "run_started_at": iso(which.started_at),
        "triggering_actor": user(state, which.actor),
        "jobs_url": f"{api}/jobs",
        "logs_url": f"{api}/logs",
        "check_suite_url": suite,
        "artifacts_url": f"{api}/artifacts",
        "cancel_url": f"{api}/cancel",
        "rerun_url": f"{api}/rerun",
        "previous_attempt_url": f"{api}/attempts/{before}" if before else None,
        "workflow_url": f"{api_of(state, repo)}/actions/workflows/{which.workflow.id}",
        "head_commit": head_commit(repo.commits[which.head_sha]),
        "repository": named(state, repo),
        "head_repository": named(state, which.head_repository),
    }


def job(state: GitHubState, which: WorkflowJob) -> dict[str, Any]:
    """Return a workflow job; its steps are derived from its status."""
    of = which.run
    api = api_of(state, of.repo)
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
        "html_url": f"{html_of(state, of.repo)}/actions/runs/{of.id}/job/{which.id}",
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


def artifact(state: GitHubState, which: Artifact) -> dict[str, Any]:
    """Return an artifact."""
    run, repo = which.run, which.run.repo
    url = f"{api_of(state, repo)}/actions/artifacts/{which.id}"
    return {
        "id": which.id,
        "node_id": node_id("Artifact", which.id),
        "name": which.name,
        "size_in_bytes": len(which.content),
        "url": url,
        "archive_download_url": f"{url}/zip",
        "expired": which.expires_at <= state.now(),
        "digest": which.digest,
        "created_at": iso(which.created_at),
        "updated_at": iso(which.created_at),
        "expires_at": iso(which.expires_at),
        "workflow_run": {
            "id": run.id,
            "repository_id": repo.id,
            "head_repository_id": run.head_repository.id,
            "head_branch": run.head_branch,
            "head_sha": run.head_sha,
        },
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


# The worst first: a suite has the worst conclusion of its runs.
SEVERITY = (
    "failure",
    "startup_failure",
    "timed_out",
    "action_required",
    "cancelled",
    "stale",
    "success",
    "neutral",
    "skipped",
)


BAD = frozenset(SEVERITY[: SEVERITY.index("success")]) - {"stale"}


def check_run(state: GitHubState, run: CheckRun) -> dict[str, Any]:
    """Return a check run as the API has it."""
    repo = run.repo
    api = f"{api_of(state, repo)}/check-runs/{run.id}"
    return {
        "id": run.id,
        "name": run.name,
        "node_id": node_id("CheckRun", run.id),
        "head_sha": run.head_sha,
        "external_id": run.external_id,
        "url": api,
        "html_url": f"{html_of(state, repo)}/runs/{run.id}",
        "details_url": run.details_url,
        "status": run.status,
        "conclusion": run.conclusion,
        "started_at": iso(run.started_at),
        "completed_at": iso(run.completed_at),
        "output": {
            "title": run.output.title,
            "summary": run.output.summary,
            "text": run.output.text,
            "annotations_count": len(run.output.annotations),
            "annotations_url": f"{api}/annotations",
        },
        "check_suite": {"id": run.suite.id},
        "app": app(state, run.app),
        "pull_requests": references(state, repo, run.head_sha),
    }


def check_run_with_suite(state: GitHubState, run: CheckRun) -> dict[str, Any]:
    """Return a check run as webhooks have it: with its whole suite."""
    return check_run(state, run) | {"check_suite": check_suite(state, run.suite)}


def check_suite(state: GitHubState, suite: CheckSuite) -> dict[str, Any]:
    """Return a check suite."""
    repo = suite.repo
    runs = latest(run for run in repo.check_runs.values() if run.suite is suite)
    status, conclusion = suite_status(suite, runs)
    commit = repo.commits[suite.head_sha]
    api = f"{api_of(state, repo)}/check-suites/{suite.id}"
    return {
        "id": suite.id,
        "node_id": node_id("CheckSuite", suite.id),
        "head_branch": suite.head_branch,
        "head_sha": suite.head_sha,
        "status": status,
        "conclusion": conclusion,
        "url": api,
        "before": next(iter(commit.parents), "0" * 40),
        "after": suite.head_sha,
        "pull_requests": references(state, repo, suite.head_sha),
        "app": app(state, suite.app),
        "created_at": iso(suite.created_at),
        "updated_at": iso(suite.updated_at),
        "rerequestable": True,
        "runs_rerequestable": True,
        "latest_check_runs_count": len(runs),
        "check_runs_url": f"{api}/check-runs",
        "head_commit": head_commit(commit),
    }


def suite_status(suite: CheckSuite, runs: list[CheckRun]) -> tuple[str, str | None]:
    """Return a suite's status and conclusion, derived from its latest runs."""
    if suite.reset or not runs:
        return "queued", None
    if any(run.status != "completed" for run in runs):
        started = any(run.status != "queued" for run in runs)
        return ("in_progress" if started else "queued"), None
    conclusions = {run.conclusion for run in runs}
    return "completed", next(each for each in SEVERITY if each in conclusions)


def latest(runs: Iterable[CheckRun]) -> list[CheckRun]:
    """Return the newest run of each App, suite and name, oldest first."""
    newest = {(run.app.app_id, run.suite.id, run.name): run for run in sorted(runs, key=lambda r: r.id)}
    return sorted(newest.values(), key=lambda run: run.id)
