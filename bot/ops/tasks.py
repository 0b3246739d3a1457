"""/admin/tasks and /api/admin/tasks: tasks of the queue, running one again, dismissing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import sqlalchemy as sa
from aiohttp import web

from bot.core.errors import Rejected
from bot.db.db_errors import REQUEST_TIMEOUT
from bot.db.rows import select
from bot.db.store import LOCK_TIMEOUT
from bot.ops import admin_access
from bot.ops.admin_access import (
    NOT_ADMIN,
    describe_for_admin,
    form_for_admin,
    json_for_admin,
    page_for_admin,
    redirect_with_notice,
)
from bot.ops.deliveries import ROWS, next_id
from bot.queue.tasks import TaskRow, task
from bot.web import addresses, openapi
from bot.web.access import CONTEXT
from bot.web.answers import Answer, RowAnswer, Time, fill_struct, one_of
from bot.web.html import render
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

TASK_STATES = ("waiting", "running", "done", "dead")
RETRYABLE = ("dead", "waiting")


class Task(
    RowAnswer,
    row=TaskRow,
    only=(
        "id", "kind", "key", "state", "created_at", "due_at", "finished_at", "attempts", "error", "cause",
    ),
    frozen=True,
):  # fmt: skip
    """A task of the queue."""

    state: Annotated[str, one_of(TASK_STATES)]
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


async def list_tasks(tx: Transaction, *, state: str | None, before: int | None, limit: int) -> list[TaskRow]:
    """Return tasks, newest first; `before` is the id of the last one on the previous page."""
    query = select(TaskRow, task)
    if state is not None:
        query = query.where(task.c.state == state)
    if before is not None:
        query = query.where(task.c.id < before)
    return await tx.fetch(query.order_by(task.c.id.desc()).limit(limit))


async def dead(tx: Transaction) -> list[int]:
    """Return the ids of all dead tasks, oldest first."""
    query = sa.select(task.c.id).where(task.c.state == "dead").order_by(task.c.id)
    return list((await tx.run(query)).scalars())


async def dismiss_tasks(tx: Transaction, identifier: int) -> TaskRow | None:
    """Close a dead task; returns it as it was, None when there is none."""
    row = await _lock_tasks(tx, identifier)
    if row is not None and row["state"] == "dead":
        await tx.run(sa.update(task).where(task.c.id == identifier).values(state="done"))
    return row


async def retry_tasks(tx: Transaction, identifier: int) -> TaskRow | None:
    """Make a dead or waiting task due at once; returns it as it was, None when there is none.

    A dead task whose key waits already is closed: the waiting one takes its place.
    """
    row = await _lock_tasks(tx, identifier)
    if row is None or row["state"] not in RETRYABLE:
        return row
    tx.wakes_workers = True
    this = sa.update(task).where(task.c.id == identifier)
    waiting = (task.c.kind == row["kind"], task.c.key == row["key"], task.c.state == "waiting")
    revived = {"state": "waiting", "due_at": tx.now, "attempts": 0, "finished_at": None, "error": None}
    try:
        async with tx.attempt():
            await tx.run(this.values(revived if row["state"] == "dead" else {"due_at": tx.now}))
    except sa.exc.IntegrityError:  # its key waits already, perhaps only since this moment
        await tx.run(sa.update(task).where(*waiting).values(due_at=tx.now))
        await tx.run(this.values(state="done", error="its key waits again"))
    return row


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
        json_url="/api/admin/tasks?" + addresses.query({"state": state}),
        states=TASK_STATES,
        form_key=admin_access.form_key(request),
    )


@form_for_admin
async def retry_by_form(request: web.Request) -> web.Response:
    """Have a dead or waiting task run now."""
    identifier, row = addresses.number(request.match_info["id"]), await _retry(request)
    if row is None or row["state"] not in RETRYABLE:
        return redirect_with_notice(
            f"task {identifier} cannot run again: it is {row['state'] if row else 'gone'}"
        )
    return redirect_with_notice(f"task {identifier} runs again")


async def send_tasks(request: web.Request) -> Tasks:
    """Answer with tasks, newest first; `next` is the `before` of the page that follows."""
    limit = addresses.limit(request, default=ROWS)
    rows, _ = await _read_tasks(request, limit)
    shown = [fill_struct(Task, row) for row in rows[:limit]]
    return Tasks(tasks=shown, next=next_id([row["id"] for row in rows], limit))


async def send_retried(request: web.Request) -> Retried:
    """Have a dead or waiting task run now, and say so."""
    row = await _retry(request)
    if row is None:
        raise Rejected(404, "not_found", f"there is no task {request.match_info['id'][:100]}")
    if row["state"] not in RETRYABLE:
        raise Rejected(
            409, "not_retryable", f"the task is {row['state']}; only dead and waiting ones can run again"
        )
    return Retried(task=row["id"], state="waiting")


TASK_ENDPOINTS = (
    Endpoint(
        web.get("/api/admin/tasks", json_for_admin(send_tasks)),
        describe_for_admin(
            "GET /api/admin/tasks",
            "tasks",
            "Tasks by state",
            Tasks,
            parameters=[
                openapi.in_query("state", Annotated[str, one_of(TASK_STATES)], "only tasks in this state"),
                openapi.limit(ROWS),
                openapi.before(openapi.Number),
            ],
            refusals=[openapi.WRONG_PARAMETER, *NOT_ADMIN],
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
            parameters=[openapi.in_path("id", openapi.Number, "id of the task")],
            refusals=[*NOT_ADMIN, (409, "not_retryable", "it is running, or done")],
        ),
    ),
    Endpoint(web.get("/admin/tasks", show_tasks)),
    Endpoint(web.post("/admin/tasks/{id}/retry", retry_by_form)),
)


async def _lock_tasks(tx: Transaction, identifier: int) -> TaskRow | None:
    """Return a task, locked until the transaction ends."""
    query = select(TaskRow, task).where(task.c.id == identifier)
    return await tx.fetch_first(query if tx.sqlite else query.with_for_update())


async def _read_tasks(request: web.Request, limit: int) -> tuple[list[TaskRow], str]:
    """Read tasks, one more than the limit if there are more; returns also the state asked for."""
    state = addresses.choice(request, "state", ("", *TASK_STATES))
    before = addresses.before_id(request)
    async with request.app[CONTEXT].store.read(answer_within=REQUEST_TIMEOUT) as tx:
        rows = await list_tasks(tx, state=state or None, before=before, limit=limit + 1)
    return rows, state


async def _retry(request: web.Request) -> TaskRow | None:
    """Make a dead or waiting task due now; returns it as it was, or None."""
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        return await retry_tasks(tx, addresses.number(request.match_info["id"]))
