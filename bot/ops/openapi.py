"""Operations of administration, health and metrics."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from bot.ops import admin_api, health, overview_reads
from bot.queue import queue_admin
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import matching, one_of

NOT_ADMIN: tuple[op.Refusal, ...] = (
    (401, "unauthorized", "`Authorization` does not hold the ADMIN_TOKEN"),
    (404, "not_found", "nothing of that id is held, or no ADMIN_TOKEN is set and the endpoint is closed"),
    op.UNAVAILABLE,
)
GUID = op.in_path("guid", Annotated[str, matching(parameters.IDENTIFIER)], "GUID of the delivery")

_for_admin = partial(
    op.Operation, topic=op.Topic("Admin", "What is stuck, and how it goes on."), callers=[op.ADMIN]
)
OPERATIONS = (
    _for_admin(
        "GET /api/admin/deliveries",
        "deliveries",
        "Deliveries by state",
        admin_api.Deliveries,
        parameters=[
            op.in_query(
                "state", Annotated[str, one_of(overview_reads.STATES)], "only deliveries in this state"
            ),
            op.in_query("event", op.Text, "only this event of GitHub's"),
            op.limit(admin_api.ROWS),
            op.before(op.Number),
        ],
        refusals=[op.WRONG_PARAMETER, *NOT_ADMIN],
    ),
    _for_admin(
        "GET /api/admin/deliveries/{guid}",
        "delivery",
        "One delivery, and what became of it",
        admin_api.DeliveryAnswer,
        parameters=[GUID],
        refusals=NOT_ADMIN,
    ),
    _for_admin(
        "POST /api/admin/deliveries/{guid}/replay",
        "replay",
        "Handle a delivery again",
        admin_api.Replayed,
        status=202,
        parameters=[GUID],
        refusals=[*NOT_ADMIN, (409, "foreign", "it was meant for another App")],
    ),
    _for_admin(
        "GET /api/admin/tasks",
        "tasks",
        "Tasks by state",
        admin_api.Tasks,
        parameters=[
            op.in_query("state", Annotated[str, one_of(queue_admin.STATES)], "only tasks in this state"),
            op.limit(admin_api.ROWS),
            op.before(op.Number),
        ],
        refusals=[op.WRONG_PARAMETER, *NOT_ADMIN],
    ),
    _for_admin(
        "POST /api/admin/tasks/{id}/retry",
        "retry",
        "Run a task now",
        admin_api.Retried,
        status=202,
        parameters=[op.in_path("id", op.Number, "id of the task")],
        refusals=[*NOT_ADMIN, (409, "not_retryable", "it is running, or done")],
    ),
    op.Operation("GET /healthz", "healthz", "Whether the process answers", health.Alive, topic=op.RUNNING),
    op.Operation(
        "GET /readyz",
        "readyz",
        "Whether work can be done",
        {
            200: op.Content(health.Ready, "It can; `notes` say what needs attention"),
            503: op.Content(health.Ready, "`missing` says why not"),
        },
        topic=op.RUNNING,
        callers=op.READER,
    ),
    op.Operation(
        "GET /metrics",
        "metrics",
        "Prometheus text",
        op.Content(str, "Counters and gauges", media_type="text/plain"),
        topic=op.RUNNING,
    ),
)
