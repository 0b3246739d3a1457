"""/admin/deliveries and /api/admin/deliveries: deliveries, what became of each, and handling one again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from aiohttp import web
from msgspec import Meta

from bot.core.errors import Rejected
from bot.db.connection_watchdog import REQUEST_TIMEOUT
from bot.db.store import LOCK_TIMEOUT
from bot.ingest import inbox
from bot.ingest.tables import DeliveryRow
from bot.ops import overview_rows, sessions
from bot.ops.admin_access import (
    NOT_ADMIN,
    describe_for_admin,
    form_for_admin,
    json_for_admin,
    notify,
    page_for_admin,
)
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import Answer, fill, matching, one_of
from bot.web.app_keys import CONTEXT
from bot.web.html import render
from bot.web.row_answers import RowAnswer
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = 100  # of a list unless ?limit= says otherwise
MOST_SHOWN = 200_000  # characters of a payload
FOREIGN = (409, "foreign", "it was meant for another App")
GUID = op.in_path("guid", Annotated[str, matching(parameters.IDENTIFIER)], "GUID of the delivery")


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


async def _read_deliveries(request: web.Request, limit: int) -> tuple[list[DeliveryRow], str, str]:
    """Return deliveries, one more than the limit where there are more, and the state and event asked for."""
    state = parameters.choice(request, "state", ("", *overview_rows.STATES))
    event = parameters.given(request, "event")[:100]
    before = parameters.before_id(request)
    async with request.app[CONTEXT].store.read(answer_within=REQUEST_TIMEOUT) as tx:
        rows = await overview_rows.list_deliveries(
            tx, state=state or None, event=event or None, before=before, limit=limit + 1
        )
    return rows, state, event


async def _read_delivery(request: web.Request) -> tuple[DeliveryRow, dict[str, Any]]:
    """Return a delivery, and what it caused."""
    guid = parameters.guid(request)
    async with request.app[CONTEXT].store.read(answer_within=REQUEST_TIMEOUT) as tx:
        found = await inbox.find(tx, guid)
        if found is None:
            raise parameters.no_delivery(guid)
        tasks = await overview_rows.caused_tasks(tx, guid, limit=ROWS)
        dispatches = await overview_rows.caused_dispatches(tx, guid, limit=ROWS)
    return found, {"tasks": tasks, "dispatches": dispatches}


async def _replay(request: web.Request) -> DeliveryRow | None:
    """Have a delivery handled again, with all its effects; None where there is none."""
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        return await inbox.replay(tx, parameters.guid(request))


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
        json_url="/api/admin/deliveries?" + parameters.query({"state": state, "event": event}),
        states=overview_rows.STATES,
    )


@page_for_admin
async def show_delivery(request: web.Request) -> web.Response:
    """Show one delivery: its payload, and what it caused."""
    found, caused = await _read_delivery(request)
    body = found["body"]
    try:
        text = msgspec.json.format(body, indent=2).decode("utf-8", "replace")
    except msgspec.DecodeError:
        text = body.decode("utf-8", "replace")
    return render(
        request,
        "admin_delivery.html",
        found=found,
        size=len(body),
        payload=text[:MOST_SHOWN],
        cut=len(text) > MOST_SHOWN,
        form_key=sessions.form_key(request),
        **caused,
    )


@form_for_admin
async def replay_by_form(request: web.Request) -> web.Response:
    """Have a delivery handled again."""
    guid, found = parameters.guid(request), await _replay(request)
    if found is None or found["state"] == "foreign":
        state = found["state"] if found else "gone"
        return notify(f"delivery {guid} cannot be handled again: it is {state}")
    return notify(f"delivery {guid} is handled again")


async def send_deliveries(request: web.Request) -> Deliveries:
    """Answer with deliveries without their payloads, newest first; `next` is the `before` of the page that follows."""
    limit = parameters.limit(request, default=ROWS)
    rows, _, _ = await _read_deliveries(request, limit)
    shown = [fill(ListedDelivery, row) for row in rows[:limit]]
    return Deliveries(deliveries=shown, next=next_id([row["id"] for row in rows], limit))


async def send_delivery(request: web.Request) -> DeliveryAnswer:
    """Answer with a stored delivery: its state, headers and payload."""
    found, _ = await _read_delivery(request)
    headers = msgspec.Raw(found["headers"].encode()) if found["headers"] else None
    body = found["body"]
    return DeliveryAnswer(
        delivery=fill(Delivery, found, size=len(body), headers=headers, payload=msgspec.Raw(body))
    )


async def send_replayed(request: web.Request) -> Replayed:
    """Have a delivery handled again, and say so."""
    guid, found = parameters.guid(request), await _replay(request)
    if found is None:
        raise parameters.no_delivery(guid)
    if found["state"] == "foreign":
        raise Rejected(409, "foreign", "this delivery was meant for another App; it is never handled")
    return Replayed(delivery=guid, state="stored")


def next_id(ids: Sequence[int], limit: int) -> int | None:
    """Return the `before` of the page that follows; `ids` holds one more where there is one."""
    return ids[limit - 1] if len(ids) > limit else None


ENDPOINTS = (
    Endpoint(
        web.get("/api/admin/deliveries", json_for_admin(send_deliveries)),
        describe_for_admin(
            "GET /api/admin/deliveries",
            "deliveries",
            "Deliveries by state",
            Deliveries,
            parameters=[
                op.in_query(
                    "state", Annotated[str, one_of(overview_rows.STATES)], "only deliveries in this state"
                ),
                op.in_query("event", op.Text, "only this event of GitHub's"),
                op.limit(ROWS),
                op.before(op.Number),
            ],
            refusals=[op.WRONG_PARAMETER, *NOT_ADMIN],
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
