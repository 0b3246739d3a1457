"""/api/admin/...: what is stuck, and let it go on. Only with ADMIN_TOKEN; without one these doors are closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from bot.errors import Rejected
from bot.store import ASKED, PATIENCE, inbox, operations, overview_reads
from bot.web import access, parameters, shown
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Row = dict[str, Any]
READING = frozenset({"GET", "HEAD"})  # what the cookie is enough for: it changes nothing
ROWS = 100  # of a list unless ?limit= says otherwise
DELIVERY_COLUMNS = (
    "id", "guid", "event", "action", "repo", "repository_id", "installation_id", "app_id", "source",
    "received_at", "state", "attempts", "due_at", "error",
)  # fmt: skip
LISTED_COLUMNS = ("id", "guid", "event", "action", "repo", "source", "received_at", "state", "error")
TASK_COLUMNS = (
    "id", "kind", "key", "state", "created_at", "due_at", "finished_at", "attempts", "error", "cause",
)  # fmt: skip
TIMES = frozenset({"received_at", "due_at", "created_at", "finished_at"})


def json_for_admin(handler: Callable[[web.Request], Awaitable[Row]], status: int = 200) -> Any:
    """Return an aiohttp handler that answers the administrator alone: 404 without a token set, 401 for others.

    Whoever signed in with a browser may read, since the pages link their JSON; changing anything takes the token.
    """

    async def guarded(request: web.Request) -> web.Response:
        if not request.app[CONTEXT].settings.admin_token:
            raise Rejected(404, "not_found", "this door is closed: set OOTBOT_ADMIN_TOKEN to open it")
        if not (access.is_admin(request) or (request.method in READING and access.is_signed_in(request))):
            detail = "send the header `Authorization: Bearer <ADMIN_TOKEN>`"
            raise Rejected(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})
        body = {"ok": True} | await handler(request)
        return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")

    return guarded


async def deliveries(request: web.Request) -> Row:
    """Answer with deliveries without their payloads, newest first; `next` is the `before` of the page that follows."""
    state = parameters.choice(request, "state", ("", *overview_reads.STATES))
    event = request.query.get("event", "").strip()[:100]
    limit = parameters.limit(request, default=ROWS)
    before = parameters.number(request.query.get("before", "")) or None
    async with request.app[CONTEXT].store.read(silence=ASKED) as tx:
        found = await overview_reads.deliveries(
            tx, state=state or None, event=event or None, before=before, limit=limit + 1
        )
    return _page("deliveries", found, LISTED_COLUMNS, limit)


async def delivery(request: web.Request) -> Row:
    """Answer with a stored delivery: what became of it, its headers and its payload."""
    guid = parameters.guid(request)
    async with request.app[CONTEXT].store.read(silence=ASKED) as tx:
        found = await inbox.find(tx, guid)
    if found is None:
        raise parameters.no_delivery(guid)
    headers = msgspec.Raw(found["headers"].encode()) if found["headers"] else None
    row = _row(found, DELIVERY_COLUMNS) | {"size": len(found["body"])}
    return {"delivery": row | {"headers": headers, "payload": msgspec.Raw(found["body"])}}


async def replay(request: web.Request) -> Row:
    """Have a delivery handled once more, with everything that follows from it."""
    guid = parameters.guid(request)
    async with request.app[CONTEXT].store.transaction(patience=PATIENCE) as tx:
        found = await operations.replay(tx, guid)
    if found is None:
        raise parameters.no_delivery(guid)
    if found["state"] == "foreign":
        raise Rejected(409, "foreign", "this delivery was meant for another App; it is never handled")
    return {"delivery": guid, "state": "stored"}


async def tasks(request: web.Request) -> Row:
    """Answer with tasks, newest first; `next` is the `before` of the page that follows."""
    state = parameters.choice(request, "state", ("", *operations.STATES))
    limit = parameters.limit(request, default=ROWS)
    before = parameters.number(request.query.get("before", "")) or None
    async with request.app[CONTEXT].store.read(silence=ASKED) as tx:
        found = await operations.tasks(tx, state=state or None, before=before, limit=limit + 1)
    return _page("tasks", found, TASK_COLUMNS, limit)


async def retry(request: web.Request) -> Row:
    """Have a dead or waiting task run now."""
    identifier = parameters.number(request.match_info["id"])
    async with request.app[CONTEXT].store.transaction(patience=PATIENCE) as tx:
        found = await operations.retry(tx, identifier)
    if found is None:
        raise Rejected(404, "not_found", f"there is no task {request.match_info['id'][:100]}")
    if found["state"] not in operations.RETRYABLE:
        raise Rejected(
            409, "not_retryable", f"the task is {found['state']}; only dead and waiting ones can run again"
        )
    return {"task": identifier, "state": "waiting"}


def _page(name: str, found: list[Row], columns: tuple[str, ...], limit: int) -> Row:
    """Return a page of a list; `found` holds one row more where another page follows."""
    following = found[limit - 1]["id"] if len(found) > limit else None
    return {name: [_row(row, columns) for row in found[:limit]], "next": following}


def _row(found: Row, columns: tuple[str, ...]) -> Row:
    return {name: shown.time(found[name]) if name in TIMES else found[name] for name in columns}


routes: list[web.RouteDef] = [
    web.get("/api/admin/deliveries", json_for_admin(deliveries)),
    web.get("/api/admin/deliveries/{guid}", json_for_admin(delivery)),
    web.post("/api/admin/deliveries/{guid}/replay", json_for_admin(replay, 202)),
    web.get("/api/admin/tasks", json_for_admin(tasks)),
    web.post("/api/admin/tasks/{id}/retry", json_for_admin(retry, 202)),
]
