"""Setup of pages: templates, the render thread, the page cache, stylesheet, icon and script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from bot.web import html, page_cache, render_thread
from bot.web.page_cache import PAGE_CACHE, CachedPage, PageCache

if TYPE_CHECKING:
    import jinja2

STATIC = Path(__file__).parent / "static"
CACHE_CONTROL = "public, max-age=86400"  # the stylesheet's address changes with its content
KINDS = {"style.css": "text/css", "favicon.svg": "image/svg+xml", "grid.js": "text/javascript"}
FILES: web.AppKey[dict[str, CachedPage]] = web.AppKey("static_files", dict)


def setup(app: web.Application, compiled: jinja2.BytecodeCache | None = None) -> None:
    """Add what every page needs; parts add their templates and routes afterwards. `compiled` keeps templates."""
    render_thread.setup(app)
    app[html.TEMPLATES] = html.environment(compiled)
    app[PAGE_CACHE] = PageCache()
    app[FILES] = {name: _sealed(name, kind) for name, kind in KINDS.items()}
    app.add_routes(
        [web.get(r"/static/{name:style\.css|favicon\.svg|grid\.js}", static), web.get("/favicon.ico", static)]
    )


async def static(request: web.Request) -> web.StreamResponse:
    """Answer with the stylesheet, the icon or the script."""
    file = request.app[FILES][request.match_info.get("name", "favicon.svg")]
    return page_cache.send(request, file, control=CACHE_CONTROL)


def _sealed(name: str, kind: str) -> CachedPage:
    content = (STATIC / name).read_bytes()
    return page_cache.seal(web.Response(body=content, content_type=kind, charset="utf-8"))
