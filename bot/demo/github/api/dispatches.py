"""How does an App start a workflow in another repository? The two kinds of dispatch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bot.demo.github import git
from bot.demo.github.api.call import ApiCall, Route, answer, nothing
from bot.demo.github.records import Dispatch
from bot.demo.github.refusals import Refused, missing
from bot.demo.github.shapes.repository import api_of, html_of

if TYPE_CHECKING:
    from aiohttp import web

    from bot.demo.github.state import Workflow

LONGEST_EVENT_TYPE = 100  # characters
MOST_PROPERTIES = 10  # at the top of client_payload
LONGEST_PAYLOAD = 65_535  # characters of client_payload as JSON
MOST_INPUTS = 25


async def repository_dispatch(call: ApiCall) -> web.Response:
    """Start whatever listens for this event type on the default branch."""
    event_type, payload = call.body.get("event_type"), call.body.get("client_payload") or {}
    if not isinstance(event_type, str) or not event_type:
        raise Refused(422, 'Invalid request.\n\n"event_type" wasn\'t supplied.')
    if len(event_type) > LONGEST_EVENT_TYPE:
        raise Refused(422, f"event_type is over {LONGEST_EVENT_TYPE} characters")
    _examine(payload)
    dispatch = Dispatch(
        repo=call.repo, event_type=event_type, client_payload=payload, at=call.now, app=call.app
    )
    call.world.dispatches.append(dispatch)
    call.later(lambda: call.pipelines.dispatched(dispatch))
    return nothing()


async def workflow_dispatch(call: ApiCall) -> web.Response:
    """Start one workflow, by file name or id; 200 with the run where its details are asked for."""
    workflow = _workflow(call)
    ref, inputs = call.body.get("ref"), call.body.get("inputs") or {}
    if not isinstance(ref, str) or not ref:
        raise Refused(422, 'Invalid request.\n\n"ref" wasn\'t supplied.')
    commit = git.resolve(call.repo, ref)
    if commit is None:
        raise Refused(422, f"No ref found for: {ref}")
    if b"workflow_dispatch" not in commit.tree.get(workflow.path, b""):
        raise Refused(422, "Workflow does not have 'workflow_dispatch' trigger")
    if not isinstance(inputs, dict) or len(inputs) > MOST_INPUTS:
        raise Refused(422, f"you may only define up to {MOST_INPUTS} inputs")
    run = call.pipelines.queued_run(
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
    call.world.dispatches.append(dispatch)
    call.later(lambda: call.pipelines.dispatched(dispatch))
    if not call.body.get("return_run_details"):
        return nothing()
    return answer(
        {
            "workflow_run_id": run.id,
            "run_url": f"{api_of(call.world, call.repo)}/actions/runs/{run.id}",
            "html_url": f"{html_of(call.world, call.repo)}/actions/runs/{run.id}",
        }
    )


def _examine(payload: Any) -> None:
    if not isinstance(payload, dict):
        raise Refused(422, "client_payload must be an object")
    if len(payload) > MOST_PROPERTIES:
        raise Refused(
            422,
            f"No more than {MOST_PROPERTIES} properties are allowed; {len(payload)} were supplied.",
        )
    size = len(json.dumps(payload, separators=(",", ":"), ensure_ascii=False))
    if size > LONGEST_PAYLOAD:
        raise Refused(422, f"client_payload is too large: {size}, at most {LONGEST_PAYLOAD}")


def _workflow(call: ApiCall) -> Workflow:
    """Return the workflow of a file on the default branch."""
    asked, repo = call.part("workflow"), call.repo
    path = f".github/workflows/{asked}"
    for each in repo.workflows.values():
        if asked == str(each.id):
            path = each.path
    if path not in repo.commits[repo.branches[repo.default_branch]].tree:
        raise missing()
    if path in repo.workflows:
        return repo.workflows[path]
    return call.world.workflow(repo, asked.rpartition(".")[0], path)


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
