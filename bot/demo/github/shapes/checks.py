"""What does GitHub say about check runs and check suites?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.demo.github.shapes.accounts import app, node_id
from bot.demo.github.shapes.pull import references
from bot.demo.github.shapes.repository import api_of, head_commit, html_of
from bot.demo.github.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.demo.github.state import CheckRun, CheckSuite
    from bot.demo.github.world import World

# The gravest first: a suite concludes as its worst run does.
GRAVITY = (
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

BAD = frozenset(GRAVITY[: GRAVITY.index("success")]) - {"stale"}


def check_run(world: World, run: CheckRun) -> dict[str, Any]:
    """Return a check run as the API does."""
    repo = run.repo
    api = f"{api_of(world, repo)}/check-runs/{run.id}"
    return {
        "id": run.id,
        "name": run.name,
        "node_id": node_id("CheckRun", run.id),
        "head_sha": run.head_sha,
        "external_id": run.external_id,
        "url": api,
        "html_url": f"{html_of(world, repo)}/runs/{run.id}",
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
        "app": app(world, run.app),
        "pull_requests": references(world, repo, run.head_sha),
    }


def hooked_check_run(world: World, run: CheckRun) -> dict[str, Any]:
    """Return a check run as webhooks do: with its suite written out."""
    return check_run(world, run) | {"check_suite": check_suite(world, run.suite)}


def check_suite(world: World, suite: CheckSuite) -> dict[str, Any]:
    """Return a check suite."""
    repo = suite.repo
    runs = latest(run for run in repo.check_runs.values() if run.suite is suite)
    status, conclusion = standing(suite, runs)
    commit = repo.commits[suite.head_sha]
    api = f"{api_of(world, repo)}/check-suites/{suite.id}"
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
        "pull_requests": references(world, repo, suite.head_sha),
        "app": app(world, suite.app),
        "created_at": iso(suite.created_at),
        "updated_at": iso(suite.updated_at),
        "rerequestable": True,
        "runs_rerequestable": True,
        "latest_check_runs_count": len(runs),
        "check_runs_url": f"{api}/check-runs",
        "head_commit": head_commit(commit),
    }


def standing(suite: CheckSuite, runs: list[CheckRun]) -> tuple[str, str | None]:
    """Return a suite's status and conclusion from its latest runs."""
    if suite.reset or not runs:
        return "queued", None
    if any(run.status != "completed" for run in runs):
        started = any(run.status != "queued" for run in runs)
        return ("in_progress" if started else "queued"), None
    conclusions = {run.conclusion for run in runs}
    return "completed", next(each for each in GRAVITY if each in conclusions)


def latest(runs: Iterable[CheckRun]) -> list[CheckRun]:
    """Return the newest run of each App, suite and name, oldest first."""
    newest = {(run.app.app_id, run.suite.id, run.name): run for run in sorted(runs, key=lambda r: r.id)}
    return sorted(newest.values(), key=lambda run: run.id)
