"""aiohttp's application, before any part adds its routes: middleware, templates, stylesheet, icon and scripts.

Errors become answers, and every answer gets its security headers.
"""

from __future__ import annotations

import re
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from bot.core import metrics, traces
from bot.core.errors import Rejected, RetryLater, StoreUnavailable
from bot.core.escaping import web_url
from bot.core.log_output import REQUEST
from bot.web import addresses, html, page_cache
from bot.web.access import BODY_SECONDS, CONTEXT
from bot.web.addresses import IDENTIFIER
from bot.web.bodies import BODY, BODY_CAPACITIES, BodyCapacities
from bot.web.connections import Connection
from bot.web.handover import is_delivery
from bot.web.html import NAVIGATION_CACHE, NavigationCache
from bot.web.limits import (
    IGNORED_LIMITER,
    IGNORED_MOST,
    LOG_LIMITER,
    REFUSAL_LIMITER,
    LogLimiter,
    RefusalLimiter,
)
from bot.web.page_cache import PAGE_CACHE, CachedPage, PageCache

if TYPE_CHECKING:
    import jinja2
    from aiohttp.typedefs import Handler

    from bot.context import Context

log = structlog.get_logger("bot.web")

ENDPOINTS = (
    ("/api/oot/callback", "callback"),
    ("/github/callback", "callback"),
    ("/api/oot/results", "results"),
    ("/api/crcr/results", "results"),
    ("/crcr/results", "results"),
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
PAGE_HEADERS = HEADERS | {  # pages have scripts of our own, which read nothing but our pages
    "Content-Security-Policy": HEADERS["Content-Security-Policy"] + "; script-src 'self'; connect-src 'self'"
}
STATIC = Path(__file__).parent / "static"
CACHE_CONTROL = "public, max-age=86400"  # the stylesheet's address changes with its content
MEDIA_TYPES = {
    "style.css": "text/css", "favicon.svg": "image/svg+xml",
    "page.js": "text/javascript", "grid.js": "text/javascript", "comfort.js": "text/javascript",
}  # fmt: skip
# the icon's colour by the state of its page; any other has that of its file
ICON_COLOURS = {"good": "#1b6e3a", "warn": "#8a5300", "bad": "#b3261e", "idle": "#5d6973"}
ICON, PLAIN = "favicon.svg", "#24577a"
ICONS: web.AppKey[dict[str, CachedPage]] = web.AppKey("icons", dict)
FILES: web.AppKey[dict[str, CachedPage]] = web.AppKey("static_files", dict)


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a request; refusals and errors become JSON, or a page for a browser."""
    began = time.perf_counter()
    identity, endpoint = _identity(request), _endpoint(request.path)
    named = REQUEST.set((identity, request.path[:200]))
    try:
        with traces.span(endpoint, cause=identity, kind="server", http_request_method=request.method) as span:
            try:
                _require_right_process(request)
                addresses.require_storable_address(request)
                response = await handler(request)
            except Exception as error:  # noqa: BLE001 - outermost: every error gets an answer
                response = await _answer(request, _refusal(request, error))
            if span:
                span.set_attribute("http.response.status_code", response.status)
    finally:
        REQUEST.reset(named)
        if BODY in request:
            request[BODY].capacity.release(request[BODY])
    metrics.count_request(endpoint, response.status, time.perf_counter() - began)
    response.headers["X-Request-Id"] = identity
    if request.method != "POST":  # machines post, and read nothing but JSON
        response.headers.update(PAGE_HEADERS if response.content_type == "text/html" else HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
    return response


def describe_failure(app: web.Application, error: BaseException) -> Rejected:
    """Log an error that is not the caller's, and return the refusal."""
    match error:
        case StoreUnavailable():
            app[LOG_LIMITER].unavailable(error)
            detail = "the database cannot be used right now; nothing was kept, send it again"
            return Rejected(503, "store_unavailable", detail, headers={"Retry-After": "5"})
        case RetryLater():
            log.warning("a request failed: what it needs cannot be reached", error=str(error))
            detail = "what this needs cannot be reached right now; try again in a moment"
            return Rejected(503, "unavailable", detail, headers={"Retry-After": "10"})
        case _:
            app[LOG_LIMITER].failed(error)
            return Rejected(500, "internal_error", "this is a bug of ours; the log holds its trace")


def refusal_body(refusal: Rejected) -> dict[str, Any]:
    """Return the JSON body of a refusal."""
    return {"ok": False, "error": refusal.code, "detail": refusal.detail}


def make_app(
    context: Context, *, body_seconds: float, body_capacities: BodyCapacities | None = None
) -> web.Application:
    """Return an application without routes; a body that takes longer than `body_seconds` is cut off."""
    app = web.Application(middlewares=[guard])
    app[CONTEXT] = context
    app[BODY_SECONDS] = body_seconds
    app[BODY_CAPACITIES] = body_capacities or BodyCapacities()
    app[LOG_LIMITER] = LogLimiter(context.clock)
    app[REFUSAL_LIMITER] = RefusalLimiter(
        context.clock, most=context.settings.refused_per_min, proxies=context.settings.trusted_proxies
    )
    app[IGNORED_LIMITER] = RefusalLimiter(
        context.clock, most=IGNORED_MOST, proxies=context.settings.trusted_proxies
    )
    return app


def set_up_pages(app: web.Application, compiled: jinja2.BytecodeCache | None = None) -> None:
    """Add what every page needs; parts add their templates and routes afterwards. `compiled` keeps templates."""
    page_cache.set_up_render_thread(app)
    app[html.TEMPLATES] = html.environment(compiled)
    app[html.TEMPLATES].globals["GITHUB"] = web_url(app[CONTEXT].settings.github_api_url)
    app[NAVIGATION_CACHE] = NavigationCache()
    app[PAGE_CACHE] = PageCache()
    files = {name: (STATIC / name).read_text(encoding="utf-8") for name in MEDIA_TYPES}
    app[FILES] = {name: _sealed_file(text, MEDIA_TYPES[name]) for name, text in files.items()}
    app[ICONS] = {
        state: _sealed_file(files[ICON].replace(PLAIN, colour), MEDIA_TYPES[ICON])
        for state, colour in ICON_COLOURS.items()
    }
    names = "|".join(map(re.escape, MEDIA_TYPES))
    app.add_routes([web.get(f"/static/{{name:{names}}}", send_static), web.get("/favicon.ico", send_static)])


async def send_static(request: web.Request) -> web.StreamResponse:
    """Answer with the stylesheet, a script, or the icon in the colour of its page's state."""
    name = request.match_info.get("name", ICON)
    file = request.app[FILES][name]
    if name == ICON:
        file = request.app[ICONS].get(request.query.get("state", ""), file)
    return page_cache.send_page(request, file, control=CACHE_CONTROL)


def _identity(request: web.Request) -> str:
    """Return the id of a request for the log: the GUID of GitHub's delivery, or a random one."""
    guid = request.headers.get("X-GitHub-Delivery", "")
    return guid if IDENTIFIER.fullmatch(guid) else secrets.token_hex(8)


def _require_right_process(request: web.Request) -> None:
    """Raise Rejected 421 for a pipelined request that another process has to answer, within its own limits."""
    if isinstance(request.protocol, Connection) and request.protocol.misdirected:
        detail = "send it on a connection of its own, or once the request before it is answered"
        raise Rejected(421, "misdirected_request", detail, headers={"Connection": "close"})


def _endpoint(path: str) -> str:
    """Return the group that a path belongs to in metrics and traces."""
    if is_delivery(path):
        return "webhooks"
    for start, endpoint in ENDPOINTS:
        if path.startswith(start):
            return endpoint
    return "page"


def _refusal(request: web.Request, error: Exception) -> Rejected:
    """Return the refusal for an error; answers that aiohttp raises as errors (redirects) pass."""
    match error:
        case Rejected():
            request.app[LOG_LIMITER].refused(error)
            return error
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
            detail = "the connection ended before the request did"  # never read
            return Rejected(400, "incomplete", detail)
        case _:
            return describe_failure(request.app, error)


async def _answer(request: web.Request, refusal: Rejected) -> web.Response:
    """Answer a refusal: with a page for browsers, with JSON for other clients."""
    if _endpoint(request.path) == "page" and html.wants_html(request):
        answer = await html.refusal(request, refusal)
    else:
        answer = web.json_response(refusal_body(refusal), status=refusal.status, headers=refusal.headers)
    if "Connection" in refusal.headers:  # aiohttp does not look at the header
        answer.force_close()
    return answer


def _sealed_file(text: str, kind: str) -> CachedPage:
    return page_cache.seal_page(web.Response(body=text.encode(), content_type=kind, charset="utf-8"))
