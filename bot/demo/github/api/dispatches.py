"""Endpoints that start workflows: repository_dispatch and workflow_dispatch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bot.demo.github import git
from bot.demo.github.api.call import ApiCall, Route, json_response, no_content
from bot.demo.github.faults import ApiError, not_found
from bot.demo.github.models import Dispatch
from bot.demo.github.serializers.repository import api_of, html_of

if TYPE_CHECKING:
    from aiohttp import web

    from bot.demo.github.models import Workflow

MAX_EVENT_TYPE = 100  # characters
MAX_PROPERTIES = 10  # at the top of client_payload
MAX_PAYLOAD = 65_535  # characters of client_payload as JSON
MAX_INPUTS = 25


async def repository_dispatch(call: ApiCall) -> web.Response:
    """Start the workflows for this event type on the default branch."""
    event_type, payload = call.body.get("event_type"), call.body.get("client_payload") or {}
    if not isinstance(event_type, str) or not event_type:
        raise ApiError(422, 'Invalid request.\n\n"event_type" wasn\'t supplied.')
    if len(event_type) > MAX_EVENT_TYPE:
        raise ApiError(422, f"event_type is over {MAX_EVENT_TYPE} characters")
    _validate(payload)
    dispatch = Dispatch(
        repo=call.repo, event_type=event_type, client_payload=payload, at=call.now, app=call.app
    )
    call.state.dispatches.append(dispatch)
    call.after_response(lambda: call.workflows.dispatched(dispatch))
    return no_content()


async def workflow_dispatch(call: ApiCall) -> web.Response:
    """Start one workflow by file name or id; 200 with the run when `return_run_details` is set."""
    workflow = _workflow(call)
    ref, inputs = call.body.get("ref"), call.body.get("inputs") or {}
    if not isinstance(ref, str) or not ref:
        raise ApiError(422, 'Invalid request.\n\n"ref" wasn\'t supplied.')
    commit = git.resolve(call.repo, ref)
    if commit is None:
        raise ApiError(422, f"No ref found for: {ref}")
    if b"workflow_dispatch" not in commit.tree.get(workflow.path, b""):
        raise ApiError(422, "Workflow does not have 'workflow_dispatch' trigger")
    if call.state.server_version and "return_run_details" in call.body:
        raise ApiError(422, 'Invalid request.\n\n"return_run_details" is not a permitted key.')
    if not isinstance(inputs, dict) or len(inputs) > MAX_INPUTS:
        raise ApiError(422, f"you may only define up to {MAX_INPUTS} inputs")
    run = call.workflows.queued_run(
        call.repo,
        workflow=workflow,
        event="workflow_dispatch",
        head_sha=commit.sha,
        actor=call.app.bot_login,
    )
    dispatch = Dispatch(
        repo=call.repo,
        event_type="workflow_dispatch",
        client_payload=inputs,
        at=call.now,
        app=call.app,
        workflow=workflow.path,
        ref=ref,
        run=run,
    )
    call.state.dispatches.append(dispatch)
    call.after_response(lambda: call.workflows.dispatched(dispatch))
    if not call.body.get("return_run_details"):
        return no_content()
    return json_response(
        {
            "workflow_run_id": run.id,
            "run_url": f"{api_of(call.state, call.repo)}/actions/runs/{run.id}",
            "html_url": f"{html_of(call.state, call.repo)}/actions/runs/{run.id}",
        }
    )


def _validate(payload: Any) -> None:
    if not isinstance(payload, dict):
        raise ApiError(422, "client_payload must be an object")
    if len(payload) > MAX_PROPERTIES:
        raise ApiError(
            422,
            f"No more than {MAX_PROPERTIES} properties are allowed; {len(payload)} were supplied.",
        )
    size = len(json.dumps(payload, separators=(",", ":"), ensure_ascii=False))
    if size > MAX_PAYLOAD:
        raise ApiError(422, f"client_payload is too large: {size}, at most {MAX_PAYLOAD}")


def _workflow(call: ApiCall) -> Workflow:
    """Return a workflow whose file is on the default branch."""
    name, repo = call.path_text("workflow"), call.repo
    path = f".github/workflows/{name}"
    for each in repo.workflows.values():
        if name == str(each.id):
            path = each.path
    if path not in repo.commits[repo.branches[repo.default_branch]].tree:
        raise not_found()
    if path in repo.workflows:
        return repo.workflows[path]
    return call.state.workflow(repo, name.rpartition(".")[0], path)


ROUTES = (
    Route(
        method="POST",
        path="/repos/{owner}/{repo}/dispatches",
        handler=repository_dispatch,
        needs=("contents:write",),
    ),
    Route(
        method="POST",
        path="/repos/{owner}/{repo}/actions/workflows/{workflow}/dispatches",
        handler=workflow_dispatch,
        needs=("actions:write",),
    ),
)
