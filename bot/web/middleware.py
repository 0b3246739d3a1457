"""What happens around every request? Errors become answers, every answer gets its security headers.

The web middleware is one of the three places that catch every error.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from bot.errors import Rejected, StoreUnavailable

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

log = structlog.get_logger("bot.web")

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
    identity = request.headers.get("X-GitHub-Delivery") or secrets.token_hex(8)
    with structlog.contextvars.bound_contextvars(request=identity[:100]):
        response = await _answer(request, handler)
    response.headers.update(HEADERS)
    return response


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Rejected as refusal:
        log.info("refused", path=request.path, status=refusal.status, code=refusal.code)
        return refuse(refusal.status, refusal.code, refusal.detail, refusal.headers)
    except StoreUnavailable as error:
        log.error("store unavailable", path=request.path, error=str(error))
        detail = "the database cannot be used right now; nothing was kept, send it again"
        return refuse(503, "store_unavailable", detail, {"Retry-After": "5"})
    except web.HTTPException as answer:
        if answer.status < 400:
            raise
        code = "_".join(answer.reason.lower().split())
        headers = {"Allow": answer.headers["Allow"]} if "Allow" in answer.headers else {}
        return refuse(answer.status, code, f"{request.method} {request.path}: {answer.reason}"[:300], headers)
    except ConnectionResetError:
        log.debug("the caller went away", path=request.path)
        return refuse(400, "incomplete", "the connection ended before the request did")  # read by nobody
    except Exception:
        log.exception("a request failed", path=request.path)
        return refuse(
            500,
            "internal_error",
            "this is a bug of ours; the log holds its trace under this request id",
        )


def refuse(status: int, code: str, detail: str, headers: dict[str, str] | None = None) -> web.Response:
    """Return the JSON every refusal has: ok, error, detail."""
    body: dict[str, Any] = {"ok": False, "error": code, "detail": detail}
    return web.json_response(body, status=status, headers=headers)
