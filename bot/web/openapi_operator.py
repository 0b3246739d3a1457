"""What can the operator look at and set going? The administrator's doors, and those of the machinery, described."""

from __future__ import annotations

from bot.store import operations, overview_reads
from bot.web import admin, parameters
from bot.web.openapi_parts import (
    ADMIN,
    ANYBODY,
    FLAG,
    OK,
    READER,
    TEXT,
    UNAVAILABLE,
    WHOLE,
    WRONG_PARAMETER,
    Refusal,
    Schema,
    answer,
    before,
    in_path,
    in_query,
    limit,
    listed,
    matching,
    maybe,
    members,
    one_of,
    operation,
    ref,
)

NOT_ADMIN: tuple[Refusal, ...] = (
    (401, "unauthorized", "`Authorization` does not hold the ADMIN_TOKEN"),
    (404, "not_found", "nothing of that id is held, or no ADMIN_TOKEN is set and the door is closed"),
    UNAVAILABLE,
)
GUID = in_path("guid", matching(parameters.IDENTIFIER.pattern), "GUID of the delivery")


def paths() -> Schema:
    """Return the operator's doors by address and method."""
    return {
        "/api/admin/deliveries": {"get": _deliveries()},
        "/api/admin/deliveries/{guid}": {"get": _delivery()},
        "/api/admin/deliveries/{guid}/replay": {"post": _replay()},
        "/api/admin/tasks": {"get": _tasks()},
        "/api/admin/tasks/{id}/retry": {"post": _retry()},
        "/healthz": {"get": _healthz()},
        "/readyz": {"get": _readyz()},
        "/metrics": {"get": _metrics()},
        "/api/openapi.json": {"get": _openapi()},
    }


def _deliveries() -> Schema:
    shown = members({"ok": OK, "deliveries": listed(ref("ListedDelivery")), "next": maybe(WHOLE)})
    return operation(
        "deliveries",
        "What came in, and what could not be handled?",
        tag="Admin",
        who=ADMIN,
        parameters=[
            in_query("state", one_of(overview_reads.STATES), "only deliveries in this state"),
            in_query("event", TEXT, "only this event of GitHub's"),
            limit(admin.ROWS),
            before(WHOLE),
        ],
        answers={200: answer("Newest first, without headers and payloads; `next` as with records", shown)},
        refusals=[WRONG_PARAMETER, *NOT_ADMIN],
    )


def _delivery() -> Schema:
    return operation(
        "delivery",
        "What became of a delivery?",
        tag="Admin",
        who=ADMIN,
        parameters=[GUID],
        answers={
            200: answer("State, error, headers and payload", members({"ok": OK, "delivery": ref("Delivery")}))
        },
        refusals=NOT_ADMIN,
    )


def _replay() -> Schema:
    return operation(
        "replay",
        "Handle a delivery again",
        tag="Admin",
        who=ADMIN,
        parameters=[GUID],
        answers={
            202: answer(
                "It is handled next", members({"ok": OK, "delivery": TEXT, "state": {"const": "stored"}})
            )
        },
        refusals=[*NOT_ADMIN, (409, "foreign", "it was meant for another App")],
    )


def _tasks() -> Schema:
    shown = members({"ok": OK, "tasks": listed(ref("Task")), "next": maybe(WHOLE)})
    return operation(
        "tasks",
        "What is to be done, and what was given up?",
        tag="Admin",
        who=ADMIN,
        parameters=[
            in_query("state", one_of(operations.STATES), "only tasks in this state"),
            limit(admin.ROWS),
            before(WHOLE),
        ],
        answers={200: answer("Newest first; `next` as with records", shown)},
        refusals=[WRONG_PARAMETER, *NOT_ADMIN],
    )


def _retry() -> Schema:
    waits = members({"ok": OK, "task": WHOLE, "state": {"const": "waiting"}})
    return operation(
        "retry",
        "Run a task now",
        tag="Admin",
        who=ADMIN,
        parameters=[in_path("id", {"type": "integer", "minimum": 1}, "id of the task")],
        answers={202: answer("It runs next", waits)},
        refusals=[*NOT_ADMIN, (409, "not_retryable", "it is running, or done")],
    )


def _healthz() -> Schema:
    return operation(
        "healthz",
        "Does the process answer?",
        tag="Operation",
        who=ANYBODY,
        answers={200: answer("It does", members({"ok": OK}))},
    )


def _readyz() -> Schema:
    said = members(
        {"ok": FLAG, "role": one_of(("web", "worker", "all")), "missing": listed(TEXT), "notes": listed(TEXT)}
    )
    return operation(
        "readyz",
        "Can work be done?",
        tag="Operation",
        who=READER,
        answers={
            200: answer("It can; `notes` say what wants attention", said),
            503: answer("`missing` says why not", said),
        },
    )


def _metrics() -> Schema:
    said = {"description": "Counters and gauges", "content": {"text/plain": {"schema": TEXT}}}
    return operation("metrics", "Prometheus text", tag="Operation", who=ANYBODY, answers={200: said})


def _openapi() -> Schema:
    return operation(
        "openapi",
        "This document",
        tag="Operation",
        who=ANYBODY,
        answers={200: answer("OpenAPI 3.1", {"type": "object", "additionalProperties": True})},
    )
