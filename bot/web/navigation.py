"""The bars of links that pages share: of the whole site, of a repository, and of pages that belong together.

Capabilities declare their entries (`Feature.navigation`); an entry stands only where there is something to show.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from aiohttp import web

from bot.core.errors import StoreUnavailable
from bot.core.feature import load
from bot.core.json_fields import FULL_NAME
from bot.web import access
from bot.web.app_keys import CONTEXT
from bot.web.asked import Parameter, asking

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.core.feature import Features, NavigationEntry
    from bot.web.asked import Asked

SITE, REPOSITORY = "site", "repository"
MOST_CACHED = 1_000  # repositories
NAMED = Parameter("repo", lambda request: request.query.get("repo", ""), "", names_repository=True)


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
        until, found = self._kept.get(key, (0.0, []))
        return found if now < until else None

    def keep(self, key: tuple[str, bool], until: float, found: list[NavigationEntry]) -> None:
        """Keep the entries of a repository up to a time."""
        self._kept[key] = (until, found)
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_CACHED:
            self._kept.popitem(last=False)


NAVIGATION: web.RequestKey[Navigation] = web.RequestKey("navigation", Navigation)
NAVIGATION_CACHE: web.AppKey[NavigationCache] = web.AppKey("navigation_cache", NavigationCache)


def read_site(request: web.Request) -> Navigation:
    """Return the bar of the whole site alone, which needs no database."""
    entries = _declared(request.app[CONTEXT].features)
    repo = repository_of(request)
    return Navigation(site=_bar(SITE, entries, request.path, repo))


async def read(request: web.Request) -> Navigation:
    """Return the bars of a page; while the database cannot be used, that of the site."""
    repo, path = repository_of(request), request.path
    try:
        entries = await _entries(request, repo)
    except StoreUnavailable:
        return read_site(request)
    bars = [_bar(name, entries, path, repo) for name in dict.fromkeys(one.bar for one in entries)]
    shown = [one for one in bars if one.name != SITE and (one.name == REPOSITORY or _is_on(one))]
    shown.sort(key=lambda bar: bar.name != REPOSITORY)
    return Navigation(site=_bar(SITE, entries, path, repo), repo=repo, bars=tuple(shown))


def repository_of(request: web.Request) -> str:
    """Return the repository that a page is of, by its path or by `?repo=`; empty where it is of none."""
    parts = request.match_info
    name = f"{parts.get('owner') or parts.get('org')}/{parts['repo']}" if "repo" in parts else ""
    name = name or request.query.get("repo", "")
    return name if FULL_NAME.fullmatch(name) else ""


async def _entries(request: web.Request, repo: str) -> list[NavigationEntry]:
    """Return the entries that have something to show."""
    context, cache = request.app[CONTEXT], request.app[NAVIGATION_CACHE]
    key, now = (repo.casefold(), access.reads_private(request)), context.clock.now()
    if (kept := cache.find(key, now)) is not None:
        return kept
    declared = _declared(context.features)
    if not repo:
        return [one for one in declared if "{repo}" not in one.path]
    async with asking(request, (NAMED,), form="page") as asked:
        found = [one for one in declared if await _has_something(asked, one, repo)]
    cache.keep(key, now + context.settings.page_cache * 1000, found)
    return found


async def _has_something(asked: Asked, entry: NavigationEntry, repo: str) -> bool:
    return not entry.shown or bool(await load(entry.shown)(asked, repo))


def _declared(features: Features) -> list[NavigationEntry]:
    found = [one for feature in features for one in feature.navigation]
    return sorted(found, key=lambda one: one.place)


def _bar(name: str, entries: Iterable[NavigationEntry], path: str, repo: str) -> Bar:
    own = [one for one in entries if one.bar == name and (repo or "{repo}" not in one.path)]
    fits = [_fit(one, path, repo) for one in own]
    best = fits.index(max(fits)) if any(fits) else -1
    links = []
    for place, one in enumerate(own):
        to = one.path.replace("{repo}", repo)
        label = one.label.replace("{repo}", repo)
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
    return any(one.current for one in bar.links)
