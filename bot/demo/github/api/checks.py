"""Endpoints of check runs and check suites: create, update, read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.demo.github import git, payloads
from bot.demo.github.api.call import ApiCall, Route, json_response, paginated, paginated_with_total
from bot.demo.github.faults import ApiError, not_found, validation_failed
from bot.demo.github.models import CheckRun, Output
from bot.demo.github.serializers import actions as serializers_actions
from bot.demo.github.serializers.repository import html_of
from bot.demo.github.times import from_iso

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

MAX_PER_NAME = 1000  # in a suite; GitHub deletes the oldest ones beyond that


async def create(call: ApiCall) -> web.Response:
    """Create a check run on a commit of the repository."""
    validate(call.body, creating=True)
    repo, sha = call.repo, call.body["head_sha"]
    if sha not in repo.commits:
        raise validation_failed(f"No commit found for SHA: {sha}", resource="CheckRun", field="head_sha")
    number = call.state.new_id()
    run = CheckRun(
        id=number,
        repo=repo,
        app=call.app,
        suite=call.state.suite(repo, call.app, sha),
        name=call.body["name"],
        head_sha=sha,
        status="queued",
        details_url=f"{html_of(call.state, repo)}/runs/{number}",
        started_at=call.now,
    )
    repo.check_runs[number] = run
    _update(call, run)
    _drop_oldest(run)
    _emit_after_response(call, run, "created")
    if run.status == "completed":
        _emit_after_response(call, run, "completed")
    return json_response(serializers_actions.check_run(call.state, run), 201)


async def update(call: ApiCall) -> web.Response:
    """Update a check run; only the App that created it may."""
    run = _find_check_run(call)
    if run.app is not call.app:
        raise ApiError(403, "Invalid app_id: this check run belongs to another App")
    validate(call.body, creating=False)
    was = run.status
    _update(call, run)
    if run.status == "completed" and was != "completed":
        _emit_after_response(call, run, "completed")
    return json_response(serializers_actions.check_run(call.state, run))


async def get(call: ApiCall) -> web.Response:
    """Show one check run."""
    return json_response(serializers_actions.check_run(call.state, _find_check_run(call)))


async def list_annotations(call: ApiCall) -> web.Response:
    """List a check run's annotations."""
    run = _find_check_run(call)
    return paginated(call, run.output.annotations, lambda _, row: _shown(call, run, row))


async def list_for_ref(call: ApiCall) -> web.Response:
    """List the check runs of a commit."""
    commit = git.resolve(call.repo, call.path_text("ref"))
    if commit is None:
        raise ApiError(422, f"No commit found for SHA: {call.path_text('ref')}")
    return _listed(call, (r for r in call.repo.check_runs.values() if r.head_sha == commit.sha))


async def list_for_suite(call: ApiCall) -> web.Response:
    """List the check runs of a suite."""
    suite = call.repo.suites.get(call.path_number("suite"))
    if suite is None:
        raise not_found()
    return _listed(call, (r for r in call.repo.check_runs.values() if r.suite is suite))


async def list_suites(call: ApiCall) -> web.Response:
    """List the check suites of a commit."""
    commit = git.resolve(call.repo, call.path_text("ref"))
    if commit is None:
        raise ApiError(422, f"No commit found for SHA: {call.path_text('ref')}")
    app = call.query("app_id")
    suites = [
        each
        for each in call.repo.suites.values()
        if each.head_sha == commit.sha and app in {"", str(each.app.app_id)}
    ]
    return paginated_with_total(call, "check_suites", suites, serializers_actions.check_suite)


def _listed(call: ApiCall, runs: Iterable[CheckRun]) -> web.Response:
    kept = list(runs) if call.query("filter") == "all" else serializers_actions.latest(runs)
    matching = [
        run
        for run in sorted(kept, key=lambda run: run.id, reverse=True)
        if call.query("check_name") in {"", run.name}
        and call.query("status") in {"", run.status}
        and call.query("app_id") in {"", str(run.app.app_id)}
    ]
    return paginated_with_total(call, "check_runs", matching, serializers_actions.check_run)


def _find_check_run(call: ApiCall) -> CheckRun:
    run = call.repo.check_runs.get(call.path_number("run"))
    if run is None:
        raise not_found()
    return run


def _update(call: ApiCall, run: CheckRun) -> None:
    """Update a run from the body; fields that are not in it stay."""
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
        run.output = _updated_output(run.output, body["output"])
    if body.get("actions") is not None:
        run.actions = tuple(body["actions"])
    run.suite.reset = False
    run.suite.updated_at = call.now


def _updated_output(before: Output, changes: dict[str, Any]) -> Output:
    """Replace the texts of a run; annotations are added."""
    return Output(
        title=changes.get("title") or before.title,
        summary=changes["summary"],
        text=changes.get("text") if "text" in changes else before.text,
        annotations=before.annotations + tuple(changes.get("annotations") or ()),
    )


def _shown(call: ApiCall, run: CheckRun, row: dict[str, Any]) -> dict[str, Any]:
    """Return an annotation with what was left out when it was made."""
    blob = f"{html_of(call.state, run.repo)}/blob/{run.head_sha}/{row['path']}"
    absent = dict.fromkeys(("start_column", "end_column", "title", "raw_details"))
    return absent | {"blob_href": blob} | row


def _drop_oldest(run: CheckRun) -> None:
    same = [
        each for each in run.repo.check_runs.values() if each.suite is run.suite and each.name == run.name
    ]
    for each in same[:-MAX_PER_NAME]:
        del run.repo.check_runs[each.id]


def _emit_after_response(call: ApiCall, run: CheckRun, action: str) -> None:
    event = payloads.check_run(call.state, run, action, run.app.bot_login)
    call.after_response(lambda: call.webhooks.emit(event))
    suite = serializers_actions.check_suite(call.state, run.suite)
    if action == "completed" and suite["status"] == "completed":
        completed = payloads.check_suite(call.state, run.suite, "completed", run.app.bot_login)
        call.after_response(lambda: call.webhooks.emit(completed))


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


CONCLUSIONS = {
    "action_required", "cancelled", "failure", "neutral", "success", "skipped", "timed_out",
}  # fmt: skip


STATUSES = {"queued", "in_progress", "completed"}


MAX_TEXT = 65_535  # bytes of summary and of text


MAX_ANNOTATIONS = 50  # in one request


LEVELS = {"notice", "warning", "failure"}


MAX_ACTIONS = 3


MAX_ACTION_LENGTHS = {"label": 20, "description": 40, "identifier": 20}


MAX_MESSAGE = 64 * 1024  # bytes of an annotation's message and raw details


MAX_TITLE = 255  # characters of an annotation's title


def validate(body: dict[str, Any], *, creating: bool) -> None:
    """Raise the error that GitHub returns for a request to create or update a check run."""
    for name in ("name", "head_sha") if creating else ():
        if not (isinstance(body.get(name), str) and body[name].strip()):
            raise ApiError(422, f'Invalid request.\n\n"{name}" wasn\'t supplied.')
    _state(body)
    _strings(body)
    if body.get("output") is not None:
        _output(body["output"], creating=creating)
    _actions(body.get("actions") or [])


def _state(body: dict[str, Any]) -> None:
    status, conclusion = body.get("status"), body.get("conclusion")
    if status is not None and status not in STATUSES:
        raise _error("status", f"{status} is not one of {sorted(STATUSES)}")
    if conclusion is not None and conclusion not in CONCLUSIONS:
        raise _error("conclusion", f"{conclusion} is not one of {sorted(CONCLUSIONS)}")
    if conclusion is None and (status == "completed" or body.get("completed_at")):
        raise _error("conclusion", "is required of a completed check run", "missing_field")


def _strings(body: dict[str, Any]) -> None:
    for name in ("name", "head_sha", "external_id", "details_url"):
        if body.get(name) is not None and not isinstance(body[name], str):
            raise _error(name, "must be a string")
    if body.get("details_url") and not body["details_url"].startswith(("http://", "https://")):
        raise _error("details_url", "must use the http or https scheme")
    for name in ("started_at", "completed_at"):
        if body.get(name) is not None:
            try:
                from_iso(body[name])
            except (ValueError, TypeError):
                raise _error(name, "is not an ISO 8601 time with a zone") from None


def _output(output: Any, *, creating: bool) -> None:
    if not isinstance(output, dict):
        raise _error("output", "must be an object")
    for name in ("title", "summary") if creating else ("summary",):
        if not (isinstance(output.get(name), str) and output[name]):
            raise _error(f"output.{name}", "is required", "missing_field")
    for name in ("summary", "text"):
        if len((output.get(name) or "").encode()) > MAX_TEXT:
            raise _error(f"output.{name}", f"exceeds a maximum bytesize of {MAX_TEXT}")
    annotations = output.get("annotations") or []
    if len(annotations) > MAX_ANNOTATIONS:
        raise _error("output.annotations", f"may be at most {MAX_ANNOTATIONS} in a request")
    for annotation in annotations:
        _annotation(annotation)


def _annotation(annotation: dict[str, Any]) -> None:
    for name in ("path", "message"):
        if not (isinstance(annotation.get(name), str) and annotation[name]):
            raise _error(f"annotation.{name}", "is required", "missing_field")
    for name in ("start_line", "end_line"):
        if not isinstance(annotation.get(name), int):
            raise _error(f"annotation.{name}", "is required", "missing_field")
    if annotation.get("annotation_level") not in LEVELS:
        raise _error("annotation.annotation_level", f"is not one of {sorted(LEVELS)}")
    columns = "start_column" in annotation or "end_column" in annotation
    if columns and annotation["start_line"] != annotation["end_line"]:
        raise _error("annotation.start_column", "is allowed only within one line")
    for name in ("message", "raw_details"):
        if len((annotation.get(name) or "").encode()) > MAX_MESSAGE:
            raise _error(f"annotation.{name}", "exceeds 64 KB")
    if len(annotation.get("title") or "") > MAX_TITLE:
        raise _error("annotation.title", f"is over {MAX_TITLE} characters")


def _actions(actions: Any) -> None:
    if not isinstance(actions, list) or len(actions) > MAX_ACTIONS:
        raise _error("actions", f"may be at most {MAX_ACTIONS}")
    for action in actions:
        for name, longest in MAX_ACTION_LENGTHS.items():
            value = action.get(name) if isinstance(action, dict) else None
            if not (isinstance(value, str) and value):
                raise _error(f"actions.{name}", "is required", "missing_field")
            if len(value) > longest:
                raise _error(f"actions.{name}", f"is over {longest} characters")


def _error(field: str, problem: str, code: str = "invalid") -> ApiError:
    return validation_failed(f"{field} {problem}", resource="CheckRun", field=field, code=code)
