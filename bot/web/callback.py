"""POST /api/oot/callback: a backend's CI reports on a job. Is the caller who it says, and is the report well formed?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from bot import metrics, results
from bot.domain.wire import Malformed, Report, parse_report
from bot.errors import Rejected
from bot.web.bodies import read_body
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from bot.context import Context
    from bot.oidc import Claims
    from bot.store import Transaction

LIMIT = 2 * 1024 * 1024  # bytes


async def receive(request: web.Request) -> web.Response:
    """Verify the token, read the report, take it; everything is stored before the answer."""
    context = request.app[CONTEXT]
    try:
        body = await read_body(request, limit=LIMIT)
        claims = await context.verifier.verify(bearer(request))
        answer = await take(context, claims, read(body))
    except Rejected as refusal:
        metrics.REPORTS.labels(refusal.code).inc()
        raise
    metrics.REPORTS.labels("duplicate" if "duplicate" in answer else answer["status"]).inc()
    return web.json_response({"ok": True, **answer})


def bearer(request: web.Request) -> str:
    """Return the bearer token of a request, empty when there is none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.casefold() == "bearer" else ""


def read(body: bytes) -> Report:
    """Read a report; raises Rejected 400 naming the field."""
    try:
        return parse_report(body)
    except Malformed as error:
        raise Rejected(400, "invalid_report", str(error)) from None


async def take(context: Context, claims: Claims, report: Report) -> dict[str, Any]:
    """Take a report in a transaction of its own or shared with others that came at the same time."""

    async def work(tx: Transaction) -> dict[str, Any]:
        return await results.accept(tx, context.settings, claims, report)

    return await context.store.write(work)
