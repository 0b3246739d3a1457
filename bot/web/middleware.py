"""What happens around every request? Errors become answers, every answer gets its security headers.

The web middleware is one of the three places that catch every error.
"""

from __future__ import annotations

import re
import secrets
import time
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from bot import metrics
from bot.errors import Rejected, StoreUnavailable
from bot.logs import REQUEST
from bot.web.limits import ROOM, TAKEN

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

log = structlog.get_logger("bot.web")

GUID = re.compile(r"[A-Za-z0-9._:-]{1,100}")
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
    identity = _identity(request)
    named = REQUEST.set((identity, request.path[:200]))
    try:
        response = await handler(request)
    except Exception as error:  # noqa: BLE001 - the outermost place: every error gets an answer
        response = _answer(request, error)
    finally:
        REQUEST.reset(named)
        if TAKEN in request:
            request.app[ROOM].leave(request)
    metrics.answered(_door(request.path), response.status, time.perf_counter() - began)
    response.headers["X-Request-Id"] = identity
    if request.method != "POST":  # machines post, and read nothing but JSON
        response.headers.update(HEADERS)
    return response


def _identity(request: web.Request) -> str:
    """Return what a request is called in the log: GitHub's name of a delivery, else one of our own."""
    guid = request.headers.get("X-GitHub-Delivery", "")
    return guid if GUID.fullmatch(guid) else secrets.token_hex(8)


def _door(path: str) -> str:
    """Return one of few words for a path."""
    for start, door in DOORS:  # no generator: this is on the way of every delivery
        if path.startswith(start):
            return door
    return "page"


def _answer(request: web.Request, error: Exception) -> web.Response:
    """Return what the caller is told; an answer that aiohttp raises as an error passes."""
    match error:
        case Rejected():
            log.info("refused", status=error.status, code=error.code)
            return refuse(error.status, error.code, error.detail, error.headers)
        case StoreUnavailable():
            log.warning("store unavailable", reason=str(error))
            detail = "the database cannot be used right now; nothing was kept, send it again"
            return refuse(503, "store_unavailable", detail, {"Retry-After": "5"})
        case web.HTTPException() if error.status < 400:
            raise error
        case web.HTTPException():
            code = "_".join(error.reason.lower().split())
            headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            return refuse(
                error.status, code, f"{request.method} {request.path}: {error.reason}"[:300], headers
            )
        case ConnectionResetError():
            log.debug("the caller went away")
            return refuse(400, "incomplete", "the connection ended before the request did")  # read by nobody
        case _:
            log.error("a request failed", exc_info=error)
            detail = "this is a bug of ours; the log holds its trace under this request id"
            return refuse(500, "internal_error", detail)


def refuse(status: int, code: str, detail: str, headers: dict[str, str] | None = None) -> web.Response:
    """Return the JSON every refusal has: ok, error, detail."""
    body: dict[str, Any] = {"ok": False, "error": code, "detail": detail}
    return web.json_response(body, status=status, headers=headers)
