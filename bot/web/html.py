"""Pages from templates: the environment, its filters, and errors as pages."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jinja2
from aiohttp import web

import bot
from bot.core import escaping
from bot.core import text as core_text
from bot.core.disk import find_shortage
from bot.core.errors import Rejected, StoreUnavailable
from bot.core.json_fields import FULL_NAME, iso_time
from bot.web import charts, missing, navigation, page_cache, parameters
from bot.web.access import FORM_KEY, SIGNED_IN
from bot.web.app_keys import CONTEXT
from bot.web.blocks import safe_address
from bot.web.log_limiter import LOG_LIMITER
from bot.web.navigation import NAVIGATION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from markupsafe import Markup

    from bot.web.parameters import Refresh


HERE = Path(__file__).parent
STATIC = HERE / "static"
CACHED_LINES = 4_000  # rendered lines: most stay the same for long
# parts of the addresses of stylesheet and scripts, so that browsers may cache them
STYLE_VERSION, SCRIPT_VERSION = (
    hashlib.sha256(b"".join((STATIC / name).read_bytes() for name in names)).hexdigest()[:8]
    for names in (("style.css",), ("page.js", "grid.js", "comfort.js"))
)
TEMPLATES: web.AppKey[jinja2.Environment] = web.AppKey("templates", jinja2.Environment)
SIGNS = {"good": "✓", "warn": "!", "bad": "✕", "wait": "…", "idle": "–"}  # noqa: RUF001 - a dash is the sign


def environment(compiled: jinja2.BytecodeCache | None = None) -> jinja2.Environment:
    """Return the templates; everything they show is escaped, an unknown name is an error.

    `compiled` keeps them for other environments, where a process has several.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([HERE / "templates"]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        bytecode_cache=compiled,
    )
    made.filters |= {
        "word": word,
        "block": escaping.clean,
        "url": escaping.url,
        "href": safe_address,
        "duration": core_text.duration,
        "short": core_text.short,
        "percent": core_text.percent,
        "minute": lambda at: iso_time(at)[:16].replace("T", " ") + " UTC",
        "time": iso_time,
        "path": path,
        "plural": core_text.plural,
        "points": charts.points,
        "values": charts.values,
    }
    made.globals |= {"SIGNS": SIGNS, "version": bot.__version__, "style_version": STYLE_VERSION}
    made.globals["script_version"] = SCRIPT_VERSION
    made.globals["cached_line"] = functools.lru_cache(CACHED_LINES)(functools.partial(_line, made))
    return made


def add_templates(
    app: web.Application,
    folder: Path,
    *,
    filters: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
) -> None:
    """Add a part's templates, the filters they use and values they all see; file names are unique."""
    loader = cast("jinja2.FileSystemLoader", app[TEMPLATES].loader)
    loader.searchpath.append(str(folder))
    add_names(app, filters=filters, values=values)


def add_names(
    app: web.Application, *, filters: Mapping[str, Any] | None = None, values: Mapping[str, Any] | None = None
) -> None:
    """Add filters and values that templates use by name."""
    app[TEMPLATES].filters |= filters or {}
    app[TEMPLATES].globals |= values or {}


def render(
    request: web.Request,
    name: str,
    *,
    status: int = 200,
    fresh: Refresh | None = None,
    counted_until: int | None = None,
    **values: Any,
) -> web.Response:
    """Return a page; `now` is what ages are counted from, `fresh` is for pages that can refresh.

    Pages whose numbers may be late say up to when changes are counted in them, `counted_until` (None: all are).
    """
    context = request.app[CONTEXT]
    now = context.clock.now()
    shortage = find_shortage(context.settings.data_dir) if request.get(SIGNED_IN) is True else None
    template = request.app[TEMPLATES].get_template(name)
    since = functools.partial(ago, now=now)
    text = template.render(
        now=now,
        status=status,
        fresh=fresh,
        counted_until=counted_until,
        ago=since,
        low_disk=shortage,
        navigation=request.get(NAVIGATION) or navigation.read_site(request),
        **{"form_key": request.get(FORM_KEY, ""), **values},
    )
    return web.Response(text=text, content_type="text/html", charset="utf-8", status=status)


def _line(environment: jinja2.Environment, name: str, *arguments: object) -> Markup:
    """Return one of many lines of a page: what the template's macro `line` makes of these arguments alone."""
    template: Any = environment.get_template(name).module
    return cast("Markup", template.line(*arguments))


def page(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Show a handler's refusals as pages, and cache its pages."""

    @functools.wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        return await page_cache.answer(request, functools.partial(refused, request, handler))

    return answer


async def refused(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.Response]]
) -> web.Response:
    """Return a handler's answer, with the bars of links that its page has; a refusal as a page."""
    try:
        request[NAVIGATION] = await navigation.read(request)
        return await handler(request)
    except Rejected as error:
        return await refusal(request, error)
    except StoreUnavailable as error:
        request.app[LOG_LIMITER].unavailable(error)
        detail = "the database cannot be used right now; try again in a moment"
        return await refusal(request, Rejected(503, "store_unavailable", detail))


async def refusal(request: web.Request, error: Rejected) -> web.Response:
    """Return a refusal as a page, with links that lead on."""
    asked = request.match_info.get("repo", "")
    page = render(
        request,
        "error.html",
        status=error.status,
        fresh=parameters.refresh_after_failure(request) if error.status >= 500 else None,
        code=error.code,
        detail=error.detail,
        asked=asked[:100],
        blocks=await missing.find_alternatives(request, error.code) if error.status == 404 else [],
    )
    page.headers.update(error.headers)
    page.headers.setdefault("Cache-Control", "no-cache")
    return page


def wants_html(request: web.Request) -> bool:
    """Whether a browser asks for a page here."""
    wanted = "text/html" in request.headers.get("Accept", "")
    return wanted and request.method in {"GET", "HEAD"} and TEMPLATES in request.app


def word(text: object, limit: int = escaping.TITLE_LIMIT) -> str:
    """Return a word from outside on one line, without invisible characters."""
    return escaping.shorten(escaping.one_line(str(text)), limit) or escaping.NAMELESS


def path(repo: str) -> str | None:
    """Return /owner/name of a repository, None for a name that could lead elsewhere."""
    return f"/{repo}" if FULL_NAME.fullmatch(repo) else None


def ago(at: int | None, *, now: int) -> str:
    """Return how long ago a time was, in its largest unit; unknown is empty."""
    if at is None:
        return ""
    number, unit, *_ = core_text.duration(max(0, now - at) / 1000).split()
    return "just now" if (number, unit) == ("0", "s") else f"{number} {unit} ago"
