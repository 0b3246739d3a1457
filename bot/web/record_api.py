"""GET /api/records/...: what do we hold of a repository's issues, pull requests, runs and so on?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.domain.records import TYPES
from bot.errors import Rejected
from bot.store import reads
from bot.web import access, parameters, shown
from bot.web.aside import aside
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from bot.domain.records import RecordType

ROWS = 100  # of a list unless ?limit= says otherwise


@aside
async def one(request: web.Request) -> web.Response:
    """Answer with one record as a flat object; a workflow run at its newest attempt, or at ?attempt=."""
    kind, repo = _kind(request), _repo(request)
    text = request.match_info["id"]
    if not parameters.IDENTIFIER.fullmatch(text):
        raise _unknown("an id is a number or a delivery's GUID")
    identifier = text if "guid" in kind.key else parameters.number(text)
    attempt = parameters.attempt(request) if "run_attempt" in kind.key else None
    async with request.app[CONTEXT].store.read() as tx:
        hidden = await access.of_request(request, tx)
        row = await reads.record(tx, kind, repo, identifier, hidden=hidden, attempt=attempt)
    if row is None:
        raise _unknown(f"no {kind.table} {text[:100]} of {repo[:200]} is held here")
    return web.json_response(shown.record(kind, row))


@aside
async def newest(request: web.Request) -> web.Response:
    """Answer with a page of records, newest first; `next` is the `before` of the page that follows."""
    kind, repo = _kind(request), _repo(request)
    limit, order = parameters.limit(request, default=ROWS), reads.order_of(kind)
    before = parameters.before(request, [name in kind.texts for name in order])
    async with request.app[CONTEXT].store.read() as tx:
        hidden = await access.of_request(request, tx)
        rows, more = await reads.record_page(tx, kind, repo, hidden=hidden, before=before, limit=limit)
    if not rows and before is None:
        raise _unknown(f"no {kind.table} of {repo[:200]} is held here")
    following = parameters.following(rows[-1][name] for name in order) if more else None
    seen = [shown.record(kind, row) for row in rows]
    return web.json_response({"ok": True, "rows": seen, "next": following})


def _kind(request: web.Request) -> RecordType:
    table = request.match_info["table"]
    if table not in TYPES:
        raise _unknown(f"there is no table {table[:100]}")
    return TYPES[table]


def _repo(request: web.Request) -> str:
    """Return the repository of the path; `-/-` stands for none, as with installations."""
    repo = parameters.repo(request)
    return "" if repo == "-/-" else repo


def _unknown(what: str) -> Rejected:
    return Rejected(404, "not_found", f"{what}; the tables are {', '.join(TYPES)}")


routes: list[web.RouteDef] = [
    web.get("/api/records/{table}/{owner}/{repo}/{id}", one),
    web.get("/api/records/{table}/{owner}/{repo}", newest),
]
