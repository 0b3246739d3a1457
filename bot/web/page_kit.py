"""Setup of pages: templates, the render thread, the page cache, stylesheet, icon and scripts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from bot.core.links import web_url
from bot.web import html, page_cache, render_thread
from bot.web.app_keys import CONTEXT
from bot.web.navigation import NAVIGATION_CACHE, NavigationCache
from bot.web.page_cache import PAGE_CACHE, CachedPage, PageCache

if TYPE_CHECKING:
    import jinja2

STATIC = Path(__file__).parent / "static"
CACHE_CONTROL = "public, max-age=86400"  # the stylesheet's address changes with its content
KINDS = {
    "style.css": "text/css", "favicon.svg": "image/svg+xml",
    "page.js": "text/javascript", "grid.js": "text/javascript", "comfort.js": "text/javascript",
}  # fmt: skip
# the icon's colour by the state of its page; any other has that of its file
COLOURS = {"good": "#1b6e3a", "warn": "#8a5300", "bad": "#b3261e", "idle": "#5d6973"}
ICON, PLAIN = "favicon.svg", "#24577a"
ICONS: web.AppKey[dict[str, CachedPage]] = web.AppKey("icons", dict)
FILES: web.AppKey[dict[str, CachedPage]] = web.AppKey("static_files", dict)


def setup(app: web.Application, compiled: jinja2.BytecodeCache | None = None) -> None:
    """Add what every page needs; parts add their templates and routes afterwards. `compiled` keeps templates."""
    render_thread.setup(app)
    app[html.TEMPLATES] = html.environment(compiled)
    app[html.TEMPLATES].globals["GITHUB"] = web_url(app[CONTEXT].settings.github_api_url)
    app[NAVIGATION_CACHE] = NavigationCache()
    app[PAGE_CACHE] = PageCache()
    files = {name: (STATIC / name).read_text(encoding="utf-8") for name in KINDS}
    app[FILES] = {name: _sealed(text, KINDS[name]) for name, text in files.items()}
    app[ICONS] = {
        state: _sealed(files[ICON].replace(PLAIN, colour), KINDS[ICON]) for state, colour in COLOURS.items()
    }
    names = "|".join(map(re.escape, KINDS))
    app.add_routes([web.get(f"/static/{{name:{names}}}", static), web.get("/favicon.ico", static)])


async def static(request: web.Request) -> web.StreamResponse:
    """Answer with the stylesheet, a script, or the icon in the colour of its page's state."""
    name = request.match_info.get("name", ICON)
    file = request.app[FILES][name]
    if name == ICON:
        file = request.app[ICONS].get(request.query.get("state", ""), file)
    return page_cache.send(request, file, control=CACHE_CONTROL)


def _sealed(text: str, kind: str) -> CachedPage:
    return page_cache.seal(web.Response(body=text.encode(), content_type=kind, charset="utf-8"))
