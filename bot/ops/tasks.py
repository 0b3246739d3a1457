"""/admin/tasks and /api/admin/tasks: tasks of the queue, and running one again."""

from __future__ import annotations

from typing import Annotated, Literal

from aiohttp import web

from bot.core.errors import Rejected
from bot.db.connection_watchdog import REQUEST_TIMEOUT
from bot.db.store import LOCK_TIMEOUT
from bot.ops import sessions
from bot.ops.admin_access import (
    NOT_ADMIN,
    describe_for_admin,
    form_for_admin,
    json_for_admin,
    notify,
    page_for_admin,
)
from bot.ops.deliveries import ROWS, next_id
from bot.queue import queue_admin
from bot.queue.tables import TaskRow
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import Answer, Time, fill, one_of
from bot.web.app_keys import CONTEXT
from bot.web.html import render
from bot.web.row_answers import RowAnswer
from bot.web.view import Endpoint


class Task(
    RowAnswer,
    row=TaskRow,
    only=(
        "id", "kind", "key", "state", "created_at", "due_at", "finished_at", "attempts", "error", "cause",
    ),
    frozen=True,
):  # fmt: skip
    """A task of the queue."""

    state: Annotated[str, one_of(queue_admin.STATES)]
    created_at: Time
    due_at: Time
    finished_at: Time | None


class Tasks(Answer, frozen=True, kw_only=True):
    """Newest first; `next` as with records"""

    tasks: list[Task]
    next: int | None


class Retried(Answer, frozen=True, kw_only=True):
    """It runs next"""

    task: int
    state: Literal["waiting"]


async def _read_tasks(request: web.Request, limit: int) -> tuple[list[TaskRow], str]:
    """Return tasks, one more than the limit where there are more, and the state asked for."""
    state = parameters.choice(request, "state", ("", *queue_admin.STATES))
    before = parameters.before_id(request)
    async with request.app[CONTEXT].store.read(answer_within=REQUEST_TIMEOUT) as tx:
        rows = await queue_admin.tasks(tx, state=state or None, before=before, limit=limit + 1)
    return rows, state


async def _retry(request: web.Request) -> TaskRow | None:
    """Have a dead or waiting task run now; returns it as it was, None where there is none."""
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        return await queue_admin.retry(tx, parameters.number(request.match_info["id"]))


@page_for_admin
async def show_tasks(request: web.Request) -> web.Response:
    """Show tasks, newest first, with a button for those that can run again."""
    rows, state = await _read_tasks(request, ROWS)
    return render(
        request,
        "admin_tasks.html",
        rows=rows[:ROWS],
        following=next_id([row["id"] for row in rows], ROWS),
        state=state,
        json_url="/api/admin/tasks?" + parameters.query({"state": state}),
        states=queue_admin.STATES,
        form_key=sessions.form_key(request),
    )


@form_for_admin
async def retry_by_form(request: web.Request) -> web.Response:
    """Have a dead or waiting task run now."""
    identifier, found = parameters.number(request.match_info["id"]), await _retry(request)
    if found is None or found["state"] not in queue_admin.RETRYABLE:
        return notify(f"task {identifier} cannot run again: it is {found['state'] if found else 'gone'}")
    return notify(f"task {identifier} runs again")


async def send_tasks(request: web.Request) -> Tasks:
    """Answer with tasks, newest first; `next` is the `before` of the page that follows."""
    limit = parameters.limit(request, default=ROWS)
    rows, _ = await _read_tasks(request, limit)
    shown = [fill(Task, row) for row in rows[:limit]]
    return Tasks(tasks=shown, next=next_id([row["id"] for row in rows], limit))


async def send_retried(request: web.Request) -> Retried:
    """Have a dead or waiting task run now, and say so."""
    found = await _retry(request)
    if found is None:
        raise Rejected(404, "not_found", f"there is no task {request.match_info['id'][:100]}")
    if found["state"] not in queue_admin.RETRYABLE:
        raise Rejected(
            409, "not_retryable", f"the task is {found['state']}; only dead and waiting ones can run again"
        )
    return Retried(task=found["id"], state="waiting")


ENDPOINTS = (
    Endpoint(
        web.get("/api/admin/tasks", json_for_admin(send_tasks)),
        describe_for_admin(
            "GET /api/admin/tasks",
            "tasks",
            "Tasks by state",
            Tasks,
            parameters=[
                op.in_query("state", Annotated[str, one_of(queue_admin.STATES)], "only tasks in this state"),
                op.limit(ROWS),
                op.before(op.Number),
            ],
            refusals=[op.WRONG_PARAMETER, *NOT_ADMIN],
        ),
    ),
    Endpoint(
        web.post("/api/admin/tasks/{id}/retry", json_for_admin(send_retried, 202)),
        describe_for_admin(
            "POST /api/admin/tasks/{id}/retry",
            "retry",
            "Run a task now",
            Retried,
            status=202,
            parameters=[op.in_path("id", op.Number, "id of the task")],
            refusals=[*NOT_ADMIN, (409, "not_retryable", "it is running, or done")],
        ),
    ),
    Endpoint(web.get("/admin/tasks", show_tasks)),
    Endpoint(web.post("/admin/tasks/{id}/retry", retry_by_form)),
)
