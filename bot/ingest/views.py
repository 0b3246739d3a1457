"""The addresses of ingest: webhooks come in, records can be read."""

from __future__ import annotations

from typing import Annotated, Any

from bot.ingest import records_view, webhooks
from bot.ingest.senders import Stored, make_receiver
from bot.web import operations as op
from bot.web.answers import matching
from bot.web.bodies import post_routes
from bot.web.view import Endpoint

GITHUB = op.Caller(
    "signature",
    "`sha256=` and the HMAC of the body's bytes with the webhook secret, in hexadecimal digits",
    header="X-Hub-Signature-256",
)
EXAMPLE = {
    "action": "opened",
    "issue": {"id": 7, "number": 1, "title": "It is slow", "updated_at": "2026-01-31T12:00:00Z"},
    "repository": {"id": 5, "full_name": "example-org/project"},
}
DELIVER = op.Operation(
    "POST /api/github/webhooks",
    "deliver",
    "Deliver a webhook",
    Stored,
    status=202,
    topic=op.RECEIVING,
    callers=[GITHUB],
    description="For GitHub. The delivery is stored before the answer; what follows from it comes later. What is "
    "meant for another App is stored and not handled.",
    parameters=[
        op.in_header("X-GitHub-Event", Annotated[str, matching(webhooks.EVENT)], "name of the event"),
        op.in_header("X-GitHub-Delivery", records_view.IDENTIFIER, "GUID of the delivery"),
        op.in_header(
            "X-GitHub-Hook-Installation-Target-ID",
            Annotated[str, matching("[0-9]{1,18}")],
            "id of the App",
            required=False,
        ),
    ],
    body=op.Content(
        dict[str, Any],
        f"as GitHub documents it for the event, at most {webhooks.LIMIT // 2**20} MiB",
        example=EXAMPLE,
    ),
    refusals=[
        (400, "invalid_header", "a header of the delivery is missing or malformed"),
        (400, "invalid_json", "the body is not a JSON object"),
        (401, "invalid_signature", "`X-Hub-Signature-256` is missing or wrong"),
        (415, "unsupported_media_type", "the body is a form"),
        *op.SENDING,
    ],
)
RECEIVE, WITH_SLASH = post_routes(webhooks.GITHUB.path, make_receiver(webhooks.GITHUB))
VIEWS = (Endpoint(RECEIVE, DELIVER), Endpoint(WITH_SLASH), records_view.LIST, records_view.ONE)
