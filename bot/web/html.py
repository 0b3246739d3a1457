"""Pages from templates: the environment, its filters, the bars of links, and errors as pages."""

from __future__ import annotations

import functools
import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import jinja2
from aiohttp import web

import bot
from bot.core import escaping
from bot.core.errors import Rejected, StoreUnavailable
from bot.core.feature import load, sections
from bot.core.files import find_shortage
from bot.core.json_fields import FULL_NAME, iso_time
from bot.core.text import duration, percent, plural, short
from bot.web import access, addresses, charts, page_cache
from bot.web.access import CONTEXT, FORM_KEY, SIGNED_IN
from bot.web.blocks import MissingSubject, order_blocks, safe_address
from bot.web.limits import LOG_LIMITER
from bot.web.parameters import Parameter, open_query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from markupsafe import Markup

    from bot.core.feature import Features, NavigationEntry
    from bot.web.addresses import Refresh
    from bot.web.blocks import Block
    from bot.web.parameters import Query

SITE, REPOSITORY = "site", "repository"
MOST_CACHED = 1_000  # repositories
NAMED = Parameter("repo", lambda request: request.query.get("repo", ""), "", names_repository=True)
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


@dataclass(frozen=True, kw_only=True)
class Link:
    """A page in a bar."""

    path: str
    label: str
    current: Literal["", "page", "true"]  # as `aria-current` has it; "true": a page that belongs to it


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Links to pages that belong together."""

    name: str
    links: tuple[Link, ...]


@dataclass(frozen=True, kw_only=True)
class Navigation:
    """The bars of a page."""

    site: Bar
    repo: str = ""  # whose page it is; empty: of none
    bars: tuple[Bar, ...] = ()


@dataclass
class NavigationCache:
    """Which entries had something to show lately, by repository and by whether private ones were shown, too."""

    _kept: OrderedDict[tuple[str, bool], tuple[float, list[NavigationEntry]]] = field(
        default_factory=OrderedDict
    )

    def find(self, key: tuple[str, bool], now: float) -> list[NavigationEntry] | None:
        """Return the entries of a repository, None when they are to be looked for."""
        until, entries = self._kept.get(key, (0.0, []))
        return entries if now < until else None

    def keep(self, key: tuple[str, bool], until: float, entries: list[NavigationEntry]) -> None:
        """Keep the entries of a repository up to a time."""
        self._kept[key] = (until, entries)
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_CACHED:
            self._kept.popitem(last=False)


NAVIGATION: web.RequestKey[Navigation] = web.RequestKey("navigation", Navigation)
NAVIGATION_CACHE: web.AppKey[NavigationCache] = web.AppKey("navigation_cache", NavigationCache)


def read_site_navigation(request: web.Request) -> Navigation:
    """Return the bar of the whole site alone, which needs no database."""
    entries = _declared(request.app[CONTEXT].features)
    repo = repository_of(request)
    return Navigation(site=_bar(SITE, entries, request.path, repo))


async def read_navigation(request: web.Request) -> Navigation:
    """Return the bars of a page; while the database cannot be used, that of the site."""
    repo, path = repository_of(request), request.path
    try:
        entries = await _entries(request, repo)
    except StoreUnavailable:
        return read_site_navigation(request)
    bars = [_bar(name, entries, path, repo) for name in dict.fromkeys(entry.bar for entry in entries)]
    shown = [bar for bar in bars if bar.name != SITE and (bar.name == REPOSITORY or _is_on(bar))]
    shown.sort(key=lambda bar: bar.name != REPOSITORY)
    return Navigation(site=_bar(SITE, entries, path, repo), repo=repo, bars=tuple(shown))


def repository_of(request: web.Request) -> str:
    """Return the repository that a page is of, by its path or by `?repo=`; empty where it is of none."""
    parts = request.match_info
    name = f"{parts.get('owner') or parts.get('org')}/{parts['repo']}" if "repo" in parts else ""
    name = name or request.query.get("repo", "")
    return name if FULL_NAME.fullmatch(name) else ""


async def find_alternatives(request: web.Request, code: str) -> list[Block]:
    """Return what capabilities have near an address that leads to nothing; nothing while the database cannot tell."""
    try:
        async with open_query(request, ()) as query:
            subject = _missing_subject(query, code)
            adding = sections(query.context.features, "missing")
            return order_blocks(*[await add(query.tx, subject) for add in adding])
    except (Rejected, StoreUnavailable):
        return []


async def find_instead(request: web.Request, code: str) -> str | None:
    """Return the path that an address without a page of its own leads to, as the first capability has one."""
    async with open_query(request, ()) as query:
        for find in sections(query.context.features, "instead"):
            path: str | None = await find(query.tx, _missing_subject(query, code))
            if path:
                return path
    return None


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
        "duration": duration,
        "short": short,
        "percent": percent,
        "minute": lambda at: iso_time(at)[:16].replace("T", " ") + " UTC",
        "time": iso_time,
        "path": path,
        "plural": plural,
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
        navigation=request.get(NAVIGATION) or read_site_navigation(request),
        **{"form_key": request.get(FORM_KEY, ""), **values},
    )
    return web.Response(text=text, content_type="text/html", charset="utf-8", status=status)


def page(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Show a handler's refusals as pages, and cache its pages."""

    @functools.wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        return await page_cache.answer_cached(request, functools.partial(refused, request, handler))

    return answer


async def refused(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.Response]]
) -> web.Response:
    """Return a handler's answer, with the bars of links that its page has; a refusal as a page."""
    try:
        request[NAVIGATION] = await read_navigation(request)
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
        fresh=addresses.refresh_after_failure(request) if error.status >= 500 else None,
        code=error.code,
        detail=error.detail,
        asked=asked[:100],
        blocks=await find_alternatives(request, error.code) if error.status == 404 else [],
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
    number, unit, *_ = duration(max(0, now - at) / 1000).split()
    return "just now" if (number, unit) == ("0", "s") else f"{number} {unit} ago"


async def _entries(request: web.Request, repo: str) -> list[NavigationEntry]:
    """Return the entries that have something to show."""
    context, cache = request.app[CONTEXT], request.app[NAVIGATION_CACHE]
    key, now = (repo.casefold(), access.reads_private(request)), context.clock.now()
    if (kept := cache.find(key, now)) is not None:
        return kept
    declared = _declared(context.features)
    if not repo:
        return [entry for entry in declared if "{repo}" not in entry.path]
    async with open_query(request, (NAMED,), form="page") as query:
        shown = [entry for entry in declared if await _has_something(query, entry, repo)]
    cache.keep(key, now + context.settings.page_cache * 1000, shown)
    return shown


async def _has_something(query: Query, entry: NavigationEntry, repo: str) -> bool:
    return not entry.shown or bool(await load(entry.shown)(query, repo))


def _declared(features: Features) -> list[NavigationEntry]:
    entries = [entry for feature in features for entry in feature.navigation]
    return sorted(entries, key=lambda entry: entry.place)


def _bar(name: str, entries: Iterable[NavigationEntry], path: str, repo: str) -> Bar:
    own = [entry for entry in entries if entry.bar == name and (repo or "{repo}" not in entry.path)]
    fits = [_fit(entry, path, repo) for entry in own]
    best = fits.index(max(fits)) if any(fits) else -1
    links = []
    for place, entry in enumerate(own):
        to = entry.path.replace("{repo}", repo)
        label = entry.label.replace("{repo}", repo)
        links.append(Link(path=to, label=label, current=_current(to, path) if place == best else ""))
    return Bar(name=name, links=tuple(links))


def _current(to: str, path: str) -> Literal["page", "true"]:
    return "page" if to.partition("?")[0] == path else "true"


def _fit(entry: NavigationEntry, path: str, repo: str) -> int:
    """Return how many characters of a page's path are those of an entry; 0: it does not belong there."""
    own = entry.path.replace("{repo}", repo).partition("?")[0]
    if path == own:
        return len(path) + 1
    starts = [start.replace("{repo}", repo) for start in entry.covers if repo or "{repo}" not in start]
    return max((len(start) for start in starts if path.startswith(start)), default=0)


def _is_on(bar: Bar) -> bool:
    return any(link.current for link in bar.links)


def _missing_subject(query: Query, code: str) -> MissingSubject:
    request = query.request
    return MissingSubject(query=query, code=code, path=request.path, repo=repository_of(request))


def _line(environment: jinja2.Environment, name: str, *arguments: object) -> Markup:
    """Return one of many lines of a page: what the template's macro `line` makes of these arguments alone."""
    template: Any = environment.get_template(name).module
    return cast("Markup", template.line(*arguments))
