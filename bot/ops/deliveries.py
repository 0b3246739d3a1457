"""/admin/deliveries and /api/admin/deliveries: deliveries, what became of each, and handling one again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import sqlalchemy as sa
from aiohttp import web
from msgspec import Meta

from bot.core.errors import Rejected
from bot.db.db_errors import REQUEST_TIMEOUT
from bot.db.rows import select
from bot.db.store import LOCK_TIMEOUT
from bot.ingest import inbox
from bot.ingest.tables import DeliveryRow, SweepRow, delivery, sweep
from bot.oot.results.tables import DispatchRow, oot_dispatch
from bot.ops import admin_access
from bot.ops.admin_access import (
    NOT_ADMIN,
    describe_for_admin,
    form_for_admin,
    json_for_admin,
    page_for_admin,
    redirect_with_notice,
)
from bot.queue.tasks import TaskRow, task
from bot.web import addresses, openapi
from bot.web.access import CONTEXT
from bot.web.answers import Answer, RowAnswer, fill_struct, matching, one_of
from bot.web.html import render
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction

HELD = delivery.c
DELIVERY_STATES = ("stored", "handled", "ignored", "foreign", "parked")
MOST_COUNTED = 100_000  # newest deliveries
ROWS = 100  # of a list unless ?limit= says otherwise
MOST_SHOWN = 200_000  # characters of a payload
FOREIGN = (409, "foreign", "it was meant for another App")
GUID = openapi.in_path("guid", Annotated[str, matching(addresses.IDENTIFIER)], "GUID of the delivery")


class ListedDelivery(
    RowAnswer,
    row=DeliveryRow,
    only=("id", "guid", "event", "action", "repo", "source", "received_at", "state", "error"),
    frozen=True,
):
    """A delivery without headers and payload."""


class Delivery(
    RowAnswer,
    row=DeliveryRow,
    only=(
        "id", "guid", "event", "action", "repo", "repository_id", "installation_id", "app_id", "source", "received_at",
        "state", "attempts", "due_at", "error", "size", "headers",
    ),
    frozen=True,
):  # fmt: skip
    """A delivery as it is stored."""

    size: int
    headers: dict[str, Any] | None
    payload: Annotated[Any, Meta(description="any JSON")]


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


async def delivery_counts(tx: Transaction, *, since: int) -> dict[str, int]:
    """Count the deliveries of a period by state."""
    newest = sa.select(HELD.state).where(HELD.received_at >= since)
    part = newest.order_by(HELD.received_at.desc()).limit(MOST_COUNTED).subquery()
    query = sa.select(part.c.state, sa.func.count()).group_by(part.c.state)
    return {state: count for state, count in await tx.run(query)}  # noqa: C416 - rows are no pairs


async def list_deliveries(
    tx: Transaction, *, state: str | None, event: str | None, before: int | None, limit: int
) -> list[DeliveryRow]:
    """Return deliveries without their bodies, newest first; `before` is the id of the last one of the page before."""
    query = select(DeliveryRow, delivery, headers=sa.null(), body=sa.null())
    if state:
        query = query.where(HELD.state == state)
    if event:
        query = query.where(HELD.event == event)
    if before is not None:
        query = query.where(HELD.id < before)
    return await tx.fetch(query.order_by(HELD.id.desc()).limit(limit))


async def task_counts(tx: Transaction) -> dict[str, int]:
    """Count the unfinished tasks by state."""
    query = sa.select(task.c.state, sa.func.count()).where(task.c.state != "done")
    return {state: count for state, count in await tx.run(query.group_by(task.c.state))}  # noqa: C416 - as above


async def failing_tasks(tx: Transaction, *, late: int, limit: int) -> list[TaskRow]:
    """Return the tasks that wait after a failure, or were due before `late`, newest first."""
    troubled = (task.c.attempts > 0) | (task.c.due_at < late)
    query = select(TaskRow, task).where(task.c.state == "waiting", troubled)
    return await tx.fetch(query.order_by(task.c.id.desc()).limit(limit))


async def caused_tasks(tx: Transaction, guid: str, *, limit: int) -> list[TaskRow]:
    """Return the tasks that a delivery was the first to request."""
    query = select(TaskRow, task).where(task.c.cause == guid)
    return await tx.fetch(query.order_by(task.c.id).limit(limit))


async def caused_dispatches(tx: Transaction, guid: str, *, limit: int) -> list[DispatchRow]:
    """Return the dispatches of a delivery."""
    query = select(DispatchRow, oot_dispatch).where(oot_dispatch.c.source_guid == guid)
    return await tx.fetch(query.order_by(oot_dispatch.c.created_at, oot_dispatch.c.id).limit(limit))


async def list_sweeps(tx: Transaction) -> list[SweepRow]:
    """Return the state of every sweep."""
    return await tx.fetch(select(SweepRow, sweep).order_by(sweep.c.name, sweep.c.app_id))


@page_for_admin
async def show_deliveries(request: web.Request) -> web.Response:
    """Show deliveries, newest first."""
    rows, state, event = await _read_deliveries(request, ROWS)
    return render(
        request,
        "admin_deliveries.html",
        rows=rows[:ROWS],
        following=next_id([row["id"] for row in rows], ROWS),
        state=state,
        event=event,
        json_url="/api/admin/deliveries?" + addresses.query({"state": state, "event": event}),
        states=DELIVERY_STATES,
    )


@page_for_admin
async def show_delivery(request: web.Request) -> web.Response:
    """Show one delivery: its payload, and what it caused."""
    row, caused = await _read_delivery(request)
    body = row["body"]
    try:
        text = msgspec.json.format(body, indent=2).decode("utf-8", "replace")
    except msgspec.DecodeError:
        text = body.decode("utf-8", "replace")
    return render(
        request,
        "admin_delivery.html",
        delivery=row,
        size=len(body),
        payload=text[:MOST_SHOWN],
        cut=len(text) > MOST_SHOWN,
        form_key=admin_access.form_key(request),
        **caused,
    )


@form_for_admin
async def replay_by_form(request: web.Request) -> web.Response:
    """Have a delivery handled again."""
    guid, row = addresses.guid(request), await _replay(request)
    if row is None or row["state"] == "foreign":
        state = row["state"] if row else "gone"
        return redirect_with_notice(f"delivery {guid} cannot be handled again: it is {state}")
    return redirect_with_notice(f"delivery {guid} is handled again")


async def send_deliveries(request: web.Request) -> Deliveries:
    """Answer with deliveries without their payloads, newest first; `next` is the `before` of the page that follows."""
    limit = addresses.limit(request, default=ROWS)
    rows, _, _ = await _read_deliveries(request, limit)
    shown = [fill_struct(ListedDelivery, row) for row in rows[:limit]]
    return Deliveries(deliveries=shown, next=next_id([row["id"] for row in rows], limit))


async def send_delivery(request: web.Request) -> DeliveryAnswer:
    """Answer with a stored delivery: its state, headers and payload."""
    row, _ = await _read_delivery(request)
    headers = msgspec.Raw(row["headers"].encode()) if row["headers"] else None
    body = row["body"]
    return DeliveryAnswer(
        delivery=fill_struct(Delivery, row, size=len(body), headers=headers, payload=msgspec.Raw(body))
    )


async def send_replayed(request: web.Request) -> Replayed:
    """Have a delivery handled again, and say so."""
    guid, row = addresses.guid(request), await _replay(request)
    if row is None:
        raise addresses.no_delivery(guid)
    if row["state"] == "foreign":
        raise Rejected(409, "foreign", "this delivery was meant for another App; it is never handled")
    return Replayed(delivery=guid, state="stored")


def next_id(ids: Sequence[int], limit: int) -> int | None:
    """Return the `before` of the page that follows; `ids` holds one more where there is one."""
    return ids[limit - 1] if len(ids) > limit else None


DELIVERY_ENDPOINTS = (
    Endpoint(
        web.get("/api/admin/deliveries", json_for_admin(send_deliveries)),
        describe_for_admin(
            "GET /api/admin/deliveries",
            "deliveries",
            "Deliveries by state",
            Deliveries,
            parameters=[
                openapi.in_query(
                    "state", Annotated[str, one_of(DELIVERY_STATES)], "only deliveries in this state"
                ),
                openapi.in_query("event", openapi.Text, "only this event of GitHub's"),
                openapi.limit(ROWS),
                openapi.before(openapi.Number),
            ],
            refusals=[openapi.WRONG_PARAMETER, *NOT_ADMIN],
        ),
    ),
    Endpoint(
        web.get("/api/admin/deliveries/{guid}", json_for_admin(send_delivery)),
        describe_for_admin(
            "GET /api/admin/deliveries/{guid}",
            "delivery",
            "One delivery, and what became of it",
            DeliveryAnswer,
            parameters=[GUID],
            refusals=NOT_ADMIN,
        ),
    ),
    Endpoint(
        web.post("/api/admin/deliveries/{guid}/replay", json_for_admin(send_replayed, 202)),
        describe_for_admin(
            "POST /api/admin/deliveries/{guid}/replay",
            "replay",
            "Handle a delivery again",
            Replayed,
            status=202,
            parameters=[GUID],
            refusals=[*NOT_ADMIN, FOREIGN],
        ),
    ),
    Endpoint(web.get("/admin/deliveries", show_deliveries)),
    Endpoint(web.get("/admin/deliveries/{guid}", show_delivery)),
    Endpoint(web.post("/admin/deliveries/{guid}/replay", replay_by_form)),
)


async def _read_deliveries(request: web.Request, limit: int) -> tuple[list[DeliveryRow], str, str]:
    """Read deliveries, one more than the limit if there are more; returns also the state and event asked for."""
    state = addresses.choice(request, "state", ("", *DELIVERY_STATES))
    event = addresses.given(request, "event")[:100]
    before = addresses.before_id(request)
    async with request.app[CONTEXT].store.read(answer_within=REQUEST_TIMEOUT) as tx:
        rows = await list_deliveries(
            tx, state=state or None, event=event or None, before=before, limit=limit + 1
        )
    return rows, state, event


async def _read_delivery(request: web.Request) -> tuple[DeliveryRow, dict[str, Any]]:
    """Return a delivery, and what it caused."""
    guid = addresses.guid(request)
    async with request.app[CONTEXT].store.read(answer_within=REQUEST_TIMEOUT) as tx:
        row = await inbox.find_delivery(tx, guid)
        if row is None:
            raise addresses.no_delivery(guid)
        tasks = await caused_tasks(tx, guid, limit=ROWS)
        dispatches = await caused_dispatches(tx, guid, limit=ROWS)
    return row, {"tasks": tasks, "dispatches": dispatches}


async def _replay(request: web.Request) -> DeliveryRow | None:
    """Requeue a delivery for handling, with all its effects; None if there is no such delivery."""
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        return await inbox.replay_delivery(tx, addresses.guid(request))
