"""/api/admin/...: deliveries and tasks, and running them again; needs ADMIN_TOKEN, 404 while none is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bot.core.errors import Rejected
from bot.db.connection_watchdog import REQUEST_TIMEOUT
from bot.db.store import LOCK_TIMEOUT
from bot.ingest import inbox
from bot.ops import overview_reads
from bot.queue import queue_admin
from bot.web import access, parameters
from bot.web.answers import Answer, Time, fill, one_of
from bot.web.app_keys import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

ROWS = 100  # of a list unless ?limit= says otherwise


class ListedDelivery(Struct, frozen=True):
    """A delivery without headers and payload."""

    id: int
    guid: str
    event: str
    action: str | None
    repo: str | None
    source: str
    received_at: Time
    state: str
    error: str | None


class Delivery(Struct, frozen=True):
    """A delivery as it is stored."""

    id: int
    guid: str
    event: str
    action: str | None
    repo: str | None
    repository_id: int | None
    installation_id: int | None
    app_id: int | None
    source: str
    received_at: Time
    state: str
    attempts: int
    due_at: Time
    error: str | None
    size: int
    headers: dict[str, Any] | None
    payload: Annotated[Any, Meta(description="any JSON")]


class Task(Struct, frozen=True):
    """A task of the queue."""

    id: int
    kind: str
    key: str
    state: Annotated[str, one_of(queue_admin.STATES)]
    created_at: Time
    due_at: Time
    finished_at: Time | None
    attempts: int
    error: str | None
    cause: str | None


class Deliveries(Answer, frozen=True, kw_only=True):
    """Newest first, without headers and payloads; `next` as with records"""

    deliveries: list[ListedDelivery]
    next: int | None


class DeliveryAnswer(Answer, frozen=True, kw_only=True):
    """State, error, headers and payload"""

    delivery: Delivery


class Replayed(Answer, frozen=True, kw_only=True):
    """It is handled next"""

    delivery: str
    state: Literal["stored"]


class Tasks(Answer, frozen=True, kw_only=True):
    """Newest first; `next` as with records"""

    tasks: list[Task]
    next: int | None


class Retried(Answer, frozen=True, kw_only=True):
    """It runs next"""

    task: int
    state: Literal["waiting"]


def json_for_admin(handler: Callable[[web.Request], Awaitable[Answer]], status: int = 200) -> Any:
    """Return an aiohttp handler that answers the administrator alone."""

    async def guarded(request: web.Request) -> web.Response:
        access.require_admin(request)
        await request.app[CONTEXT].intake.show_arrived()
        body = msgspec.json.encode(await handler(request))
        return web.Response(body=body, status=status, content_type="application/json")

    return guarded


async def deliveries(request: web.Request) -> Deliveries:
    """Answer with deliveries without their payloads, newest first; `next` is the `before` of the page that follows."""
    state = parameters.choice(request, "state", ("", *overview_reads.STATES))
    event = parameters.given(request, "event")[:100]
    limit = parameters.limit(request, default=ROWS)
    before = parameters.before_id(request)
    async with request.app[CONTEXT].store.read(answer_within=REQUEST_TIMEOUT) as tx:
        found = await overview_reads.deliveries(
            tx, state=state or None, event=event or None, before=before, limit=limit + 1
        )
    shown = [fill(ListedDelivery, row) for row in found[:limit]]
    return Deliveries(deliveries=shown, next=_next([row["id"] for row in found], limit))


async def delivery(request: web.Request) -> DeliveryAnswer:
    """Answer with a stored delivery: its state, headers and payload."""
    guid = parameters.guid(request)
    async with request.app[CONTEXT].store.read(answer_within=REQUEST_TIMEOUT) as tx:
        found = await inbox.find(tx, guid)
    if found is None:
        raise parameters.no_delivery(guid)
    headers = msgspec.Raw(found["headers"].encode()) if found["headers"] else None
    body = found["body"]
    return DeliveryAnswer(
        delivery=fill(Delivery, found, size=len(body), headers=headers, payload=msgspec.Raw(body))
    )


async def replay(request: web.Request) -> Replayed:
    """Have a delivery handled again, with all its effects."""
    guid = parameters.guid(request)
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        found = await inbox.replay(tx, guid)
    if found is None:
        raise parameters.no_delivery(guid)
    if found["state"] == "foreign":
        raise Rejected(409, "foreign", "this delivery was meant for another App; it is never handled")
    return Replayed(delivery=guid, state="stored")


async def tasks(request: web.Request) -> Tasks:
    """Answer with tasks, newest first; `next` is the `before` of the page that follows."""
    state = parameters.choice(request, "state", ("", *queue_admin.STATES))
    limit = parameters.limit(request, default=ROWS)
    before = parameters.before_id(request)
    async with request.app[CONTEXT].store.read(answer_within=REQUEST_TIMEOUT) as tx:
        found = await queue_admin.tasks(tx, state=state or None, before=before, limit=limit + 1)
    return Tasks(
        tasks=[fill(Task, row) for row in found[:limit]], next=_next([row["id"] for row in found], limit)
    )


async def retry(request: web.Request) -> Retried:
    """Have a dead or waiting task run now."""
    identifier = parameters.number(request.match_info["id"])
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        found = await queue_admin.retry(tx, identifier)
    if found is None:
        raise Rejected(404, "not_found", f"there is no task {request.match_info['id'][:100]}")
    if found["state"] not in queue_admin.RETRYABLE:
        raise Rejected(
            409, "not_retryable", f"the task is {found['state']}; only dead and waiting ones can run again"
        )
    return Retried(task=identifier, state="waiting")


def _next(ids: Sequence[int], limit: int) -> int | None:
    """Return the `before` of the page that follows; `ids` holds one more where there is one."""
    return ids[limit - 1] if len(ids) > limit else None


routes: list[web.RouteDef] = [
    web.get("/api/admin/deliveries", json_for_admin(deliveries)),
    web.get("/api/admin/deliveries/{guid}", json_for_admin(delivery)),
    web.post("/api/admin/deliveries/{guid}/replay", json_for_admin(replay, 202)),
    web.get("/api/admin/tasks", json_for_admin(tasks)),
    web.post("/api/admin/tasks/{id}/retry", json_for_admin(retry, 202)),
]
