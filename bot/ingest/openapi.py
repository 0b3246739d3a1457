"""Operations of what GitHub sends: taking deliveries, reading records."""

from __future__ import annotations

from typing import Annotated, Any

from bot.ingest import webhooks
from bot.ingest.api import RECORDS, ROWS, Records
from bot.ingest.records import TYPES
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import any_of, matching, one_of

GITHUB = op.Caller(
    "signature",
    "`sha256=` and the HMAC of the body's bytes with the webhook secret, in hexadecimal digits",
    header="X-Hub-Signature-256",
)
IDENTIFIER = Annotated[str, matching(parameters.IDENTIFIER)]
TOPIC = op.Topic("Records", "GitHub's objects, as we know them.")
NOT_ADMIN = (401, "unauthorized", "installations are for the administrator only")
TABLE = op.in_path("table", Annotated[str, one_of(TYPES)], "which kind of record")
WEBHOOK = {
    "action": "opened",
    "issue": {"id": 7, "number": 1, "title": "It is slow", "updated_at": "2026-01-31T12:00:00Z"},
    "repository": {"id": 5, "full_name": "example-org/project"},
}

OPERATIONS = (
    op.Operation(
        "POST /api/github/webhooks",
        "deliver",
        "Deliver a webhook",
        webhooks.Stored,
        status=202,
        topic=op.DOORS,
        callers=[GITHUB],
        description="For GitHub. The delivery is stored before the answer; what follows from it comes later. What is "
        "meant for another App is stored and not handled.",
        parameters=[
            op.in_header("X-GitHub-Event", Annotated[str, matching(webhooks.EVENT)], "name of the event"),
            op.in_header("X-GitHub-Delivery", IDENTIFIER, "GUID of the delivery"),
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
            example=WEBHOOK,
        ),
        refusals=[
            (400, "invalid_header", "a header of the delivery is missing or malformed"),
            (400, "invalid_json", "the body is not a JSON object"),
            (401, "invalid_signature", "`X-Hub-Signature-256` is missing or wrong"),
            (415, "unsupported_media_type", "the body is a form"),
            *op.SENDING,
        ],
    ),
    op.Operation(
        "GET /api/records/{table}/{owner}/{repo}",
        "records",
        "Records of a repository",
        Records,
        topic=TOPIC,
        callers=op.READER,
        description="The repository `-/-` stands for none, as with installations: for the administrator only.",
        parameters=[TABLE, *op.repository(), op.limit(ROWS), op.before()],
        named=tuple(RECORDS.values()),
        refusals=[
            op.WRONG_PARAMETER,
            NOT_ADMIN,
            (404, "not_found", "no such table, or nothing held"),
            *op.READING,
        ],
    ),
    op.Operation(
        "GET /api/records/{table}/{owner}/{repo}/{id}",
        "record",
        "One issue, pull request, run ...",
        op.Content(Annotated[Any, any_of(RECORDS.values())], "One flat object with GitHub's names"),
        topic=TOPIC,
        callers=op.READER,
        parameters=[
            TABLE,
            *op.repository(),
            op.in_path(
                "id",
                IDENTIFIER,
                "the number of an issue or pull request, the delivery's GUID of an event, otherwise GitHub's id",
            ),
            op.whole("attempt", 1_000_000, "of a workflow run; the newest when left out"),
        ],
        refusals=[
            op.WRONG_PARAMETER,
            NOT_ADMIN,
            (404, "not_found", "no such table or record"),
            *op.READING,
        ],
    ),
)
