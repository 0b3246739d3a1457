"""How do Apps make and read check runs?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.demo.github import git, payloads
from bot.demo.github.api import check_rules
from bot.demo.github.api.call import ApiCall, Route, answer, counted, listing
from bot.demo.github.refusals import Refused, invalid, missing
from bot.demo.github.shapes import checks
from bot.demo.github.shapes.repository import html_of
from bot.demo.github.state import CheckRun, Output
from bot.demo.github.times import from_iso

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

MOST_OF_ONE_NAME = 1000  # in a suite; GitHub deletes the oldest beyond


async def create(call: ApiCall) -> web.Response:
    """Make a check run on a commit that the repository has."""
    check_rules.examine(call.body, creating=True)
    repo, sha = call.repo, call.body["head_sha"]
    if sha not in repo.commits:
        raise invalid(f"No commit found for SHA: {sha}", resource="CheckRun", field="head_sha")
    number = call.world.new_id()
    run = CheckRun(
        id=number,
        repo=repo,
        app=call.app,
        suite=call.world.suite(repo, call.app, sha),
        name=call.body["name"],
        head_sha=sha,
        status="queued",
        details_url=f"{html_of(call.world, repo)}/runs/{number}",
        started_at=call.now,
    )
    repo.check_runs[number] = run
    _change(call, run)
    _drop_oldest(run)
    _tell(call, run, "created")
    if run.status == "completed":
        _tell(call, run, "completed")
    return answer(checks.check_run(call.world, run), 201)


async def update(call: ApiCall) -> web.Response:
    """Change a check run; only the App that made it may."""
    run = _run(call)
    if run.app is not call.app:
        raise Refused(403, "Invalid app_id: this check run belongs to another App")
    check_rules.examine(call.body, creating=False)
    was = run.status
    _change(call, run)
    if run.status == "completed" and was != "completed":
        _tell(call, run, "completed")
    return answer(checks.check_run(call.world, run))


async def get(call: ApiCall) -> web.Response:
    """Show one check run."""
    return answer(checks.check_run(call.world, _run(call)))


async def list_annotations(call: ApiCall) -> web.Response:
    """List a check run's annotations."""
    return listing(call, _run(call).output.annotations, lambda _, row: row)


async def list_for_ref(call: ApiCall) -> web.Response:
    """List the check runs of a commit."""
    commit = git.resolve(call.repo, call.part("ref"))
    if commit is None:
        raise Refused(422, f"No commit found for SHA: {call.part('ref')}")
    return _listed(call, (r for r in call.repo.check_runs.values() if r.head_sha == commit.sha))


async def list_for_suite(call: ApiCall) -> web.Response:
    """List the check runs of a suite."""
    suite = call.repo.suites.get(call.number("suite"))
    if suite is None:
        raise missing()
    return _listed(call, (r for r in call.repo.check_runs.values() if r.suite is suite))


async def list_suites(call: ApiCall) -> web.Response:
    """List the check suites of a commit."""
    commit = git.resolve(call.repo, call.part("ref"))
    if commit is None:
        raise Refused(422, f"No commit found for SHA: {call.part('ref')}")
    app = call.query("app_id")
    suites = [
        each
        for each in call.repo.suites.values()
        if each.head_sha == commit.sha and app in {"", str(each.app.app_id)}
    ]
    return counted(call, "check_suites", suites, checks.check_suite)


def _listed(call: ApiCall, runs: Iterable[CheckRun]) -> web.Response:
    kept = list(runs) if call.query("filter") == "all" else checks.latest(runs)
    wanted = [
        run
        for run in sorted(kept, key=lambda run: run.id, reverse=True)
        if call.query("check_name") in {"", run.name}
        and call.query("status") in {"", run.status}
        and call.query("app_id") in {"", str(run.app.app_id)}
    ]
    return counted(call, "check_runs", wanted, checks.check_run)


def _run(call: ApiCall) -> CheckRun:
    run = call.repo.check_runs.get(call.number("run"))
    if run is None:
        raise missing()
    return run


def _change(call: ApiCall, run: CheckRun) -> None:
    """Let a run become what the body says; what it does not mention stays."""
    body = call.body
    run.name = body.get("name") or run.name
    run.external_id = body.get("external_id") or run.external_id
    run.details_url = body.get("details_url") or run.details_url
    if body.get("started_at"):
        run.started_at = from_iso(body["started_at"])
    if body.get("conclusion"):
        run.status, run.conclusion = "completed", body["conclusion"]
        run.completed_at = from_iso(body["completed_at"]) if body.get("completed_at") else call.now
    elif body.get("status"):
        run.status, run.conclusion, run.completed_at = body["status"], None, None
    if body.get("output"):
        run.output = _said(run.output, body["output"])
    if body.get("actions") is not None:
        run.actions = tuple(body["actions"])
    run.suite.reset = False
    run.suite.updated_at = call.now


def _said(before: Output, said: dict[str, Any]) -> Output:
    """Replace what a run says; annotations alone are added to."""
    return Output(
        title=said.get("title") or before.title,
        summary=said["summary"],
        text=said.get("text") if "text" in said else before.text,
        annotations=before.annotations + tuple(said.get("annotations") or ()),
    )


def _drop_oldest(run: CheckRun) -> None:
    same = [
        each for each in run.repo.check_runs.values() if each.suite is run.suite and each.name == run.name
    ]
    for each in same[:-MOST_OF_ONE_NAME]:
        del run.repo.check_runs[each.id]


def _tell(call: ApiCall, run: CheckRun, action: str) -> None:
    event = payloads.check_run(call.world, run, action, run.app.bot_login)
    call.later(lambda: call.hooks.emit(event))
    suite = checks.check_suite(call.world, run.suite)
    if action == "completed" and suite["status"] == "completed":
        over = payloads.check_suite(call.world, run.suite, "completed", run.app.bot_login)
        call.later(lambda: call.hooks.emit(over))


RUNS = "/repos/{owner}/{repo}/check-runs"
READ, WRITE = ("checks:read",), ("checks:write",)
ROUTES = (
    Route(method="POST", path=RUNS, handler=create, needs=WRITE),
    Route(method="PATCH", path=RUNS + "/{run}", handler=update, needs=WRITE),
    Route(method="GET", path=RUNS + "/{run}", handler=get, needs=READ),
    Route(method="GET", path=RUNS + "/{run}/annotations", handler=list_annotations, needs=READ),
    Route(
        method="GET",
        path="/repos/{owner}/{repo}/commits/{ref:.+}/check-runs",
        handler=list_for_ref,
        needs=READ,
    ),
    Route(
        method="GET",
        path="/repos/{owner}/{repo}/commits/{ref:.+}/check-suites",
        handler=list_suites,
        needs=READ,
    ),
    Route(
        method="GET",
        path="/repos/{owner}/{repo}/check-suites/{suite}/check-runs",
        handler=list_for_suite,
        needs=READ,
    ),
)
