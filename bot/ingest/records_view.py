"""GET /api/records/...: a repository's issues, pull requests, runs and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from bot.core.errors import Rejected
from bot.core.json_fields import Kind
from bot.ingest import record_reads
from bot.ingest.records import INSTALLATION, TYPES, RecordType
from bot.web import access, parameters
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import Answer, Time, any_of, fill, matching, one_of
from bot.web.asked import Parameter
from bot.web.row_answers import answer_fields
from bot.web.view import Json, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from bot.web.asked import Asked

ROWS = 100  # of a list without ?limit=
FROM_GITHUB = Annotated[Any, Meta(description="as GitHub sends it")]
IDENTIFIER = Annotated[str, matching(parameters.IDENTIFIER)]
ADDRESS = "/api/records/{table}/{owner}/{repo}"


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


class Records(Answer, frozen=True, kw_only=True):
    """Newest first, fewer where texts are long; `next` is the `before` of the page after, null at the end"""

    rows: list[Record]
    next: str | None


async def read_record(asked: Asked) -> Struct:
    """Return one record as a flat object; a workflow run at its newest attempt, or at ?attempt=."""
    kind, repo, text = asked[TABLE], _repo(asked), asked[IDENTIFIED]
    identifier = text if "guid" in kind.key else parameters.number(text)
    attempt = asked[ATTEMPT] if "run_attempt" in kind.key else None
    row = await record_reads.record(asked.tx, kind, repo, identifier, hidden=asked.hidden, attempt=attempt)
    if row is None:
        raise _unknown(f"no {kind.table} {text[:100]} of {repo[:200]} is held here")
    return fill(RECORDS[kind.table], row)


async def read_records(asked: Asked) -> Records:
    """Return a page of records, newest first; `next` is the `before` of the page that follows."""
    kind, repo, before = asked[TABLE], _repo(asked), asked[BEFORE]
    rows, more = await record_reads.record_page(
        asked.tx, kind, repo, hidden=asked.hidden, before=before, limit=asked[LIMIT]
    )
    if not rows and before is None:
        raise _unknown(f"no {kind.table} of {repo[:200]} is held here")
    following = parameters.following(rows[-1][name] for name in record_reads.order_of(kind)) if more else None
    return Records(rows=[fill(RECORDS[kind.table], row) for row in rows], next=following)


def _repo(asked: Asked) -> str:
    """Return the repository of the path; `-/-` stands for none, as with installations: for the administrator only.

    An installation says which permissions an account has granted, whatever repository it is found under.
    """
    repo = asked[REPO]
    if repo == "-/-" or asked[TABLE] is INSTALLATION:
        access.require_admin(asked.request)
    return "" if repo == "-/-" else repo


def _table(name: str) -> RecordType[Any]:
    if name not in TYPES:
        raise _unknown(f"there is no table {name[:100]}")
    return TYPES[name]


def _identifier(text: str) -> str:
    if not parameters.IDENTIFIER.fullmatch(text):
        raise _unknown("an id is a number or a delivery's GUID")
    return text


def _position(request: web.Request) -> tuple[str | int, ...] | None:
    kind = _table(request.match_info["table"])
    return parameters.before(request, [name in kind.texts for name in record_reads.order_of(kind)])


def _unknown(what: str) -> Rejected:
    return Rejected(404, "not_found", f"{what}; the tables are {', '.join(TYPES)}")


TABLE = declare.in_path(
    "table", Annotated[str, one_of(TYPES)], "which kind of record", parse=_table, default=INSTALLATION
)
IDENTIFIED = declare.in_path(
    "id",
    IDENTIFIER,
    "the number of an issue or pull request, the delivery's GUID of an event, otherwise GitHub's id",
    parse=_identifier,
    default="",
)
ATTEMPT = declare.optional_whole("attempt", 1_000_000, "of a workflow run; the newest when left out")
LIMIT = declare.limit(ROWS)
BEFORE = Parameter("before", _position, None, (op.before(),))
TOPIC = op.Topic("Records", "GitHub's objects, as we know them.")
NOT_ADMIN = (401, "unauthorized", "installations are for the administrator only")
LIST = View(
    read=read_records,
    parameters=(TABLE, REPO, LIMIT, BEFORE),
    json=Json(
        path=ADDRESS,
        answer=lambda found: found,
        content=Records,
        named=tuple(RECORDS.values()),
        name="records",
        summary="Records of a repository",
        topic=TOPIC,
        description="The repository `-/-` stands for none, as with installations: for the administrator only.",
        refusals=(NOT_ADMIN, (404, "not_found", "no such table, or nothing held")),
    ),
)
ONE = View(
    read=read_record,
    parameters=(TABLE, REPO, IDENTIFIED, ATTEMPT),
    json=Json(
        path=f"{ADDRESS}/{{id}}",
        answer=lambda found: found,
        content=op.Content(Record, "One flat object with GitHub's names"),
        name="record",
        summary="One issue, pull request, run ...",
        topic=TOPIC,
        refusals=(NOT_ADMIN, (404, "not_found", "no such table or record")),
    ),
)
