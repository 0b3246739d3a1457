"""/api/admin/...: what is stuck, and let it go on. Only with ADMIN_TOKEN; without one these doors are closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from bot.errors import Rejected
from bot.store import inbox, operations
from bot.web import access, parameters, shown
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Row = dict[str, Any]
TASKS = 100  # of a list unless ?limit= says otherwise
DELIVERY_COLUMNS = (
    "id", "guid", "event", "action", "repo", "repository_id", "installation_id", "app_id", "source",
    "received_at", "state", "attempts", "due_at", "error",
)  # fmt: skip
TASK_COLUMNS = (
    "id", "kind", "key", "state", "created_at", "due_at", "finished_at", "attempts", "error", "cause",
)  # fmt: skip
TIMES = frozenset({"received_at", "due_at", "created_at", "finished_at"})


def for_admin(handler: Callable[[web.Request], Awaitable[Row]], status: int = 200) -> Any:
    """Return an aiohttp handler that answers the administrator alone: 404 without a token set, 401 for others."""

    async def guarded(request: web.Request) -> web.Response:
        if not request.app[CONTEXT].settings.admin_token:
            raise Rejected(404, "not_found", "this door is closed: set OOTBOT_ADMIN_TOKEN to open it")
        if not access.is_admin(request):
            detail = "send the header `Authorization: Bearer <ADMIN_TOKEN>`"
            raise Rejected(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})
        body = {"ok": True} | await handler(request)
        return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")

    return guarded


async def delivery(request: web.Request) -> Row:
    """Answer with a stored delivery: what became of it, its headers and its payload."""
    guid = _guid(request)
    async with request.app[CONTEXT].store.read() as tx:
        found = await inbox.find(tx, guid)
    if found is None:
        raise _no_delivery(guid)
    headers = msgspec.Raw(found["headers"].encode()) if found["headers"] else None
    row = _row(found, DELIVERY_COLUMNS) | {"size": len(found["body"])}
    return {"delivery": row | {"headers": headers, "payload": msgspec.Raw(found["body"])}}


async def replay(request: web.Request) -> Row:
    """Have a delivery handled once more, with everything that follows from it."""
    guid = _guid(request)
    async with request.app[CONTEXT].store.transaction() as tx:
        found = await operations.replay(tx, guid)
    if found is None:
        raise _no_delivery(guid)
    if found["state"] == "foreign":
        raise Rejected(409, "foreign", "this delivery was meant for another App; it is never handled")
    return {"delivery": guid, "state": "stored"}


async def tasks(request: web.Request) -> Row:
    """Answer with tasks, newest first; `next` is the `before` of the page that follows."""
    state = request.query.get("state") or None
    if state not in {None, *operations.STATES}:
        raise Rejected(
            400, "invalid_parameter", f"state must be one of {', '.join(operations.STATES)}, or left out"
        )
    limit = parameters.limit(request, default=TASKS)
    before = parameters.number(request.query.get("before", "")) or None
    async with request.app[CONTEXT].store.read() as tx:
        found = await operations.tasks(tx, state=state, before=before, limit=limit + 1)
    following = found[limit - 1]["id"] if len(found) > limit else None
    return {"tasks": [_row(row, TASK_COLUMNS) for row in found[:limit]], "next": following}


async def retry(request: web.Request) -> Row:
    """Have a dead or waiting task run now."""
    identifier = parameters.number(request.match_info["id"])
    async with request.app[CONTEXT].store.transaction() as tx:
        found = await operations.retry(tx, identifier)
    if found is None:
        raise Rejected(404, "not_found", f"there is no task {request.match_info['id'][:100]}")
    if found["state"] not in {"dead", "waiting"}:
        raise Rejected(
            409, "not_retryable", f"the task is {found['state']}; only dead and waiting ones can run again"
        )
    return {"task": identifier, "state": "waiting"}


def _guid(request: web.Request) -> str:
    guid = request.match_info["guid"]
    if not parameters.IDENTIFIER.fullmatch(guid):
        raise _no_delivery(guid)
    return guid


def _no_delivery(guid: str) -> Rejected:
    return Rejected(404, "not_found", f"no delivery {guid[:100]} is held here")


def _row(found: Row, columns: tuple[str, ...]) -> Row:
    return {name: shown.time(found[name]) if name in TIMES else found[name] for name in columns}


routes: list[web.RouteDef] = [
    web.get("/api/admin/deliveries/{guid}", for_admin(delivery)),
    web.post("/api/admin/deliveries/{guid}/replay", for_admin(replay, 202)),
    web.get("/api/admin/tasks", for_admin(tasks)),
    web.post("/api/admin/tasks/{id}/retry", for_admin(retry, 202)),
]
