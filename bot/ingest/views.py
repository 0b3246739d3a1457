"""The addresses of ingest: POST /api/github/webhooks takes deliveries, GET /api/records/... returns records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from bot.core.errors import Rejected
from bot.core.json_fields import Kind
from bot.ingest import record_store, webhooks
from bot.ingest.tables import INSTALLATION, TYPES, RecordType
from bot.ingest.webhooks import Stored, make_receiver
from bot.web import access, addresses, openapi, parameters
from bot.web.answers import Answer, Time, answer_fields, any_of, fill_struct, matching, one_of
from bot.web.bodies import post_routes
from bot.web.parameters import REPO, Parameter
from bot.web.view import Endpoint, Json, View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from bot.web.parameters import Query

PAGE_ROWS = 100  # of a list without ?limit=
FROM_GITHUB = Annotated[Any, Meta(description="as GitHub sends it")]
IDENTIFIER = Annotated[str, matching(addresses.IDENTIFIER)]
ADDRESS = "/api/records/{table}/{owner}/{repo}"
ATTEMPT = parameters.optional_whole("attempt", 1_000_000, "of a workflow run; the newest when left out")
LIMIT = parameters.limit(PAGE_ROWS)
TOPIC = openapi.Topic("Records", "GitHub's objects, as we know them.")
NOT_ADMIN = (401, "unauthorized", "installations are for the administrator only")
GITHUB_CALLER = openapi.Caller(
    "signature",
    "`sha256=` and the HMAC of the body's bytes with the webhook secret, in hexadecimal digits",
    header="X-Hub-Signature-256",
)
EXAMPLE = {
    "action": "opened",
    "issue": {"id": 7, "number": 1, "title": "It is slow", "updated_at": "2026-01-31T12:00:00Z"},
    "repository": {"id": 5, "full_name": "example-org/project"},
}
DELIVER = openapi.Operation(
    "POST /api/github/webhooks",
    "deliver",
    "Deliver a webhook",
    Stored,
    status=202,
    topic=openapi.RECEIVING,
    callers=[GITHUB_CALLER],
    description="For GitHub. The delivery is stored before the answer; what follows from it comes later. What is "
    "meant for another App is stored and not handled.",
    parameters=[
        openapi.in_header(
            "X-GitHub-Event", Annotated[str, matching(webhooks.EVENT_NAME)], "name of the event"
        ),
        openapi.in_header("X-GitHub-Delivery", IDENTIFIER, "GUID of the delivery"),
        openapi.in_header(
            "X-GitHub-Hook-Installation-Target-ID",
            Annotated[str, matching("[0-9]{1,18}")],
            "id of the App",
            required=False,
        ),
    ],
    body=openapi.Content(
        dict[str, Any],
        f"as GitHub documents it for the event, at most {webhooks.BODY_LIMIT // 2**20} MiB",
        example=EXAMPLE,
    ),
    refusals=[
        (400, "invalid_header", "a header of the delivery is missing or malformed"),
        (400, "invalid_json", "the body is not a JSON object"),
        (401, "invalid_signature", "`X-Hub-Signature-256` is missing or wrong"),
        (415, "unsupported_media_type", "the body is a form"),
        *openapi.SENDING,
    ],
)
RECEIVE, WITH_SLASH = post_routes(webhooks.GITHUB_SENDER.path, make_receiver(webhooks.GITHUB_SENDER))


class Records(Answer, frozen=True, kw_only=True):
    """Newest first, fewer where texts are long; `next` is the `before` of the page after, null at the end"""

    rows: list[Record]
    next: str | None


def make_struct(kind: RecordType[Any], more: Mapping[str, Any] | None = None) -> type[Struct]:
    """Return the struct of one row of a table, in the order of its columns, without the merge state.

    `more` are fields that are computed, with their types.
    """
    own = {column.name: FROM_GITHUB | None for column in kind.columns if column.kind is Kind.JSON}
    shown = answer_fields(kind.row, own) | {"deleted_at": Time | None} | dict(more or {})
    about = {"__doc__": f"A row of {kind.table} as deliveries left it, merged by the rule {kind.rule}"}
    return msgspec.defstruct(f"record_{kind.table}", shown.items(), namespace=about, frozen=True)


RECORDS = {name: make_struct(kind) for name, kind in TYPES.items()}
Record = Annotated[Any, any_of(RECORDS.values())]


async def read_record(query: Query) -> Struct:
    """Return one record as a flat object; a workflow run at its newest attempt, or at ?attempt=."""
    kind, repo, text = query[TABLE], _repo(query), query[IDENTIFIED]
    identifier = text if "guid" in kind.key else addresses.number(text)
    attempt = query[ATTEMPT] if "run_attempt" in kind.key else None
    row = await record_store.read_record(
        query.tx, kind, repo, identifier, hidden=query.hidden, attempt=attempt
    )
    if row is None:
        raise _unknown(f"no {kind.table} {text[:100]} of {repo[:200]} is held here")
    return fill_struct(RECORDS[kind.table], row)


async def read_records(query: Query) -> Records:
    """Return a page of records, newest first; `next` is the `before` of the page that follows."""
    kind, repo, before = query[TABLE], _repo(query), query[BEFORE]
    rows, more = await record_store.read_record_page(
        query.tx, kind, repo, hidden=query.hidden, before=before, limit=query[LIMIT]
    )
    if not rows and before is None:
        raise _unknown(f"no {kind.table} of {repo[:200]} is held here")
    following = (
        addresses.following(rows[-1][name] for name in record_store.sort_columns(kind)) if more else None
    )
    return Records(rows=[fill_struct(RECORDS[kind.table], row) for row in rows], next=following)


def _table(name: str) -> RecordType[Any]:
    if name not in TYPES:
        raise _unknown(f"there is no table {name[:100]}")
    return TYPES[name]


def _identifier(text: str) -> str:
    if not addresses.IDENTIFIER.fullmatch(text):
        raise _unknown("an id is a number or a delivery's GUID")
    return text


def _position(request: web.Request) -> tuple[str | int, ...] | None:
    kind = _table(request.match_info["table"])
    return addresses.before(request, [name in kind.texts for name in record_store.sort_columns(kind)])


TABLE = parameters.in_path(
    "table", Annotated[str, one_of(TYPES)], "which kind of record", parse=_table, default=INSTALLATION
)
IDENTIFIED = parameters.in_path(
    "id",
    IDENTIFIER,
    "the number of an issue or pull request, the delivery's GUID of an event, otherwise GitHub's id",
    parse=_identifier,
    default="",
)
BEFORE = Parameter("before", _position, None, (openapi.before(),))
LIST_VIEW = View(
    read=read_records,
    parameters=(TABLE, REPO, LIMIT, BEFORE),
    json=Json(
        path=ADDRESS,
        answer=lambda content: content,
        content=Records,
        named=tuple(RECORDS.values()),
        name="records",
        summary="Records of a repository",
        topic=TOPIC,
        description="The repository `-/-` stands for none, as with installations: for the administrator only.",
        refusals=(NOT_ADMIN, (404, "not_found", "no such table, or nothing held")),
    ),
)
RECORD_VIEW = View(
    read=read_record,
    parameters=(TABLE, REPO, IDENTIFIED, ATTEMPT),
    json=Json(
        path=f"{ADDRESS}/{{id}}",
        answer=lambda content: content,
        content=openapi.Content(Record, "One flat object with GitHub's names"),
        name="record",
        summary="One issue, pull request, run ...",
        topic=TOPIC,
        refusals=(NOT_ADMIN, (404, "not_found", "no such table or record")),
    ),
)
VIEWS = (Endpoint(RECEIVE, DELIVER), Endpoint(WITH_SLASH), LIST_VIEW, RECORD_VIEW)


def _repo(query: Query) -> str:
    """Return the repository of the path; `-/-` stands for none, as with installations: for the administrator only.

    An installation says which permissions an account has granted, whatever repository it is found under.
    """
    repo = query[REPO]
    if repo == "-/-" or query[TABLE] is INSTALLATION:
        access.require_admin(query.request)
    return "" if repo == "-/-" else repo


def _unknown(what: str) -> Rejected:
    return Rejected(404, "not_found", f"{what}; the tables are {', '.join(TYPES)}")
