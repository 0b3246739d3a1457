"""What happens around every request? Errors become answers, every answer gets its security headers.

The web middleware is one of the two places that catch every error; the worker is the other.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from bot import metrics, traces
from bot.errors import Rejected, StoreUnavailable
from bot.logs import REQUEST
from bot.web import html
from bot.web.limits import ROOM, TAKEN
from bot.web.parameters import IDENTIFIER
from bot.web.remarks import REMARKS

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

log = structlog.get_logger("bot.web")

DOORS = (
    ("/api/github/webhooks", "webhooks"),
    ("/api/oot/callback", "callback"),
    ("/github/callback", "callback"),
    ("/api/oot/results", "results"),
    ("/api/admin/", "admin"),
    ("/api/", "read"),
    ("/healthz", "operator"),
    ("/readyz", "operator"),
    ("/metrics", "operator"),
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
}


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn refusals and errors into the answers the caller understands."""
    began = time.perf_counter()
    identity, door = _identity(request), _door(request.path)
    named = REQUEST.set((identity, request.path[:200]))
    try:
        with traces.span(door, cause=identity, kind="server", http_request_method=request.method) as span:
            try:
                response = await handler(request)
            except Exception as error:  # noqa: BLE001 - the outermost place: every error gets an answer
                response = _answer(request, _refusal(request, error))
            if span:
                span.set_attribute("http.response.status_code", response.status)
    finally:
        REQUEST.reset(named)
        if TAKEN in request:
            request.app[ROOM].leave(request)
    metrics.answered(door, response.status, time.perf_counter() - began)
    response.headers["X-Request-Id"] = identity
    if request.method != "POST":  # machines post, and read nothing but JSON
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
    return response


def _identity(request: web.Request) -> str:
    """Return what a request is called in the log: GitHub's name of a delivery, else one of our own."""
    guid = request.headers.get("X-GitHub-Delivery", "")
    return guid if IDENTIFIER.fullmatch(guid) else secrets.token_hex(8)


def _door(path: str) -> str:
    """Return one of few words for a path."""
    for start, door in DOORS:  # no generator: this is on the way of every delivery
        if path.startswith(start):
            return door
    return "page"


def _refusal(request: web.Request, error: Exception) -> Rejected:
    """Return what the caller is told; an answer that aiohttp raises as an error passes."""
    match error:
        case Rejected():
            request.app[REMARKS].refused(error)
            return error
        case StoreUnavailable():
            request.app[REMARKS].unavailable(error)
            detail = "the database cannot be used right now; nothing was kept, send it again"
            return Rejected(503, "store_unavailable", detail, headers={"Retry-After": "5"})
        case web.HTTPException() if error.status < 400:
            raise error
        case web.HTTPException():
            code = "_".join(error.reason.lower().split())
            asked = f"{request.method} {request.path}"[:300]
            nothing = error.status in {404, 405}
            detail = f"nothing answers {asked}" if nothing else f"{asked}: {error.reason}"
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            return Rejected(error.status, code, detail, headers=allow)
        case ConnectionResetError():
            log.debug("the caller went away")
            detail = "the connection ended before the request did"  # read by nobody
            return Rejected(400, "incomplete", detail)
        case _:
            log.error("a request failed", exc_info=error)
            detail = "this is a bug of ours; the log holds its trace under this request id"
            return Rejected(500, "internal_error", detail)


def _answer(request: web.Request, refusal: Rejected) -> web.Response:
    """Return a page to somebody who looks for one, to everybody else the JSON every refusal has."""
    if _door(request.path) == "page" and html.is_for_a_person(request):
        return html.refusal(request, refusal)
    body: dict[str, Any] = {"ok": False, "error": refusal.code, "detail": refusal.detail}
    return web.json_response(body, status=refusal.status, headers=refusal.headers)
