"""GET /api/records/...: a repository's issues, pull requests, runs and so on; and the routes of ingest."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bot.core.errors import Rejected
from bot.core.json_fields import Kind
from bot.ingest import record_reads, webhooks
from bot.ingest.records import INSTALLATION, TYPES, RecordType
from bot.web import access, parameters
from bot.web.answers import Answer, Time, any_of, fill, send
from bot.web.app_keys import CONTEXT
from bot.web.bodies import door
from bot.web.render_thread import in_render_thread
from bot.web.row_answers import answer_fields

ROWS = 100  # of a list without ?limit=
FROM_GITHUB = Annotated[Any, Meta(description="as GitHub sends it")]


def _struct(kind: RecordType[Any]) -> type[Struct]:
    """Return the struct of one row of a table, in the order of its columns, without the merge state."""
    own = {column.name: FROM_GITHUB | None for column in kind.columns if column.kind is Kind.JSON}
    shown = answer_fields(kind.row, own) | {"deleted_at": Time | None}
    about = {"__doc__": f"A row of {kind.table} as deliveries left it, merged by the rule {kind.rule}"}
    return msgspec.defstruct(f"record_{kind.table}", shown.items(), namespace=about, frozen=True)


RECORDS = {name: _struct(kind) for name, kind in TYPES.items()}


class Records(Answer, frozen=True, kw_only=True):
    """Newest first, fewer where texts are long; `next` is the `before` of the page after, null at the end"""

    rows: list[Annotated[Any, any_of(RECORDS.values())]]
    next: str | None


@in_render_thread
async def one(request: web.Request) -> web.Response:
    """Answer with one record as a flat object; a workflow run at its newest attempt, or at ?attempt=."""
    kind, repo = _kind(request), _repo(request)
    text = request.match_info["id"]
    if not parameters.IDENTIFIER.fullmatch(text):
        raise _unknown("an id is a number or a delivery's GUID")
    identifier = text if "guid" in kind.key else parameters.number(text)
    attempt = parameters.attempt(request)
    attempt = attempt if "run_attempt" in kind.key else None
    async with request.app[CONTEXT].store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        row = await record_reads.record(tx, kind, repo, identifier, hidden=hidden, attempt=attempt)
    if row is None:
        raise _unknown(f"no {kind.table} {text[:100]} of {repo[:200]} is held here")
    return send(fill(RECORDS[kind.table], row))


@in_render_thread
async def newest(request: web.Request) -> web.Response:
    """Answer with a page of records, newest first; `next` is the `before` of the page that follows."""
    kind, repo = _kind(request), _repo(request)
    limit, order = parameters.limit(request, default=ROWS), record_reads.order_of(kind)
    before = parameters.before(request, [name in kind.texts for name in order])
    async with request.app[CONTEXT].store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        rows, more = await record_reads.record_page(tx, kind, repo, hidden=hidden, before=before, limit=limit)
    if not rows and before is None:
        raise _unknown(f"no {kind.table} of {repo[:200]} is held here")
    following = parameters.following(rows[-1][name] for name in order) if more else None
    shown = [fill(RECORDS[kind.table], row) for row in rows]
    return send(Records(rows=shown, next=following))


def _kind(request: web.Request) -> RecordType[Any]:
    table = request.match_info["table"]
    if table not in TYPES:
        raise _unknown(f"there is no table {table[:100]}")
    return TYPES[table]


def _repo(request: web.Request) -> str:
    """Return the repository of the path; `-/-` stands for none, as with installations: for the administrator only.

    An installation says which permissions an account has granted, whatever repository it is found under.
    """
    repo = parameters.repo(request)
    if repo == "-/-" or request.match_info["table"] == INSTALLATION.table:
        access.require_admin(request)
    return "" if repo == "-/-" else repo


def _unknown(what: str) -> Rejected:
    return Rejected(404, "not_found", f"{what}; the tables are {', '.join(TYPES)}")


def setup(app: web.Application) -> None:
    """Add the routes of ingest."""
    app.add_routes(
        [
            *door("/api/github/webhooks", webhooks.receive),
            web.get("/api/records/{table}/{owner}/{repo}/{id}", one),
            web.get("/api/records/{table}/{owner}/{repo}", newest),
        ]
    )
