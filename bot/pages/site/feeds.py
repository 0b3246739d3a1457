"""Feeds and badges of backends and branches; they show only what is public, to every reader."""

from __future__ import annotations

import hashlib
import re
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

from aiohttp import web

from bot.core import text
from bot.core.errors import Rejected
from bot.core.escaping import one_line, shorten
from bot.core.json_fields import iso_time
from bot.jobs import branch_reads
from bot.jobs.branch_standing import STANDINGS
from bot.notify import rows
from bot.notify.rows import hidden_of
from bot.oot.statistics import health
from bot.oot.statistics.health import Window
from bot.oot.statistics.stats import grade
from bot.web import addresses
from bot.web import parameters as declare
from bot.web.access import CONTEXT
from bot.web.openapi import UNKNOWN_BRANCH, UNKNOWN_REPOSITORY, DeclaredRefusal
from bot.web.page_cache import in_render_thread
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction
    from bot.jobs.branch_reads import Branch
    from bot.jobs.branch_standing import BranchState
    from bot.notify.tables import NoticeRow

COLOURS = {"good": "#2b7a3d", "warn": "#8a5a00", "bad": "#b3261e", "wait": "#40576b", "idle": "#5c6166"}
HEIGHT, PADDING = 20, 6
PART_MOST = 40  # characters of a part
NARROW, WIDE = frozenset("fijlrt.,:;!|'()[]{}/ -"), frozenset("mwMW%@")
UNKNOWN_BADGE = "unknown"
ATOM_NAMESPACE = "http://www.w3.org/2005/Atom"
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
BEGINNING = 0  # epoch milliseconds: a feed without entries was never updated
ET.register_namespace("", ATOM_NAMESPACE)
FEED_ENTRIES = 50
MAX_AGE = 60  # seconds that an answer may be cached, as by GitHub's proxy of images
BADGE_DAYS = 30
BRANCH_MOST = 300  # characters
SVG_TYPE, ATOM_TYPE = "image/svg+xml", "application/atom+xml"
TONES = {"green": "good", "amber": "warn", "red": "bad", "none": "idle"}
BRANCH_TONES: dict[BranchState, str] = {
    "green": "good", "broken": "bad", "red": "bad", "running": "wait", "unknown": "idle",
}  # fmt: skip
BRANCH = declare.text("branch", "name of the branch; without it the default branch", most=BRANCH_MOST)
NO_BACKEND = DeclaredRefusal(404, "unknown_backend", "not on the allowlist, or private")
_BACKEND, _REPOSITORY = "/oot/{org}/{repo}", declare.REPOSITORY


def draw_badge(label: str, message: str, tone: str) -> str:
    """Return a badge; both texts may come from outside."""
    label, message = (shorten(one_line(text), PART_MOST) for text in (label, message))
    left, right = _text_width(label) + 2 * PADDING, _text_width(message) + 2 * PADDING
    whole, title = left + right, escape(f"{label}: {message}")
    texts = "".join(
        f'<text x="{at}" y="14" textLength="{width - 2 * PADDING}">{escape(text)}</text>'
        for at, width, text in ((PADDING, left, label), (left + PADDING, right, message))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{HEIGHT}" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<clipPath id="r"><rect width="{whole}" height="{HEIGHT}" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="{HEIGHT}" fill="#3a3f44"/>'
        f'<rect x="{left}" width="{right}" height="{HEIGHT}" fill="{COLOURS[tone]}"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>'
    )


def _text_width(text: str) -> int:
    """Estimate the width of a text in pixels; it is drawn to fit it."""
    return round(sum(4.2 if letter in NARROW else 10 if letter in WIDE else 7 for letter in text)) or 1


def make_feed(notices: Sequence[NoticeRow], *, title: str, url: str, address: str, page: str) -> bytes:
    """Return a feed of notices, newest first; `address` is its own path, `page` that of its subject."""
    feed = ET.Element(f"{{{ATOM_NAMESPACE}}}feed")
    _add_text(feed, "title", title)
    _add_text(feed, "id", f"{url}{address}")
    _add_text(feed, "updated", iso_time(max((notice["at"] for notice in notices), default=BEGINNING)))
    _add_link(feed, "self", f"{url}{address}")
    _add_link(feed, "alternate", f"{url}{page}")
    author = ET.SubElement(feed, f"{{{ATOM_NAMESPACE}}}author")
    _add_text(author, "name", "ootbot")
    for notice in notices:
        _add_entry(feed, notice, url)
    text: str = ET.tostring(feed, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}'.encode()


def _add_entry(feed: ET.Element, notice: NoticeRow, url: str) -> None:
    entry = ET.SubElement(feed, f"{{{ATOM_NAMESPACE}}}entry")
    _add_text(entry, "title", notice["heading"])
    _add_text(entry, "id", f"urn:uuid:{notice['id']}")
    _add_text(entry, "published", iso_time(notice["at"]))
    _add_text(entry, "updated", iso_time(notice["at"]))
    _add_link(entry, "alternate", f"{url}{notice['path']}")
    ET.SubElement(entry, f"{{{ATOM_NAMESPACE}}}category", {"term": notice["event"]})
    content = "\n".join(one_line(line) for line in notice["lines"])
    ET.SubElement(entry, f"{{{ATOM_NAMESPACE}}}content", {"type": "text"}).text = NOT_XML.sub("", content)


def _add_text(parent: ET.Element, name: str, text: str) -> None:
    ET.SubElement(parent, f"{{{ATOM_NAMESPACE}}}{name}").text = NOT_XML.sub("", one_line(text))


def _add_link(parent: ET.Element, relation: str, address: str) -> None:
    ET.SubElement(parent, f"{{{ATOM_NAMESPACE}}}link", {"rel": relation, "href": NOT_XML.sub("", address)})


def _cacheable_response(request: web.Request, body: bytes, kind: str) -> web.Response:
    """Return an answer that anybody may cache for a while; 304 for a caller that has it."""
    etag = hashlib.sha256(body).hexdigest()[:20]
    headers = {"Cache-Control": f"public, max-age={MAX_AGE}", "ETag": f'"{etag}"'}
    if any(tag.value in {etag, "*"} for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers={**headers, "Content-Type": f"{kind}; charset=utf-8"})


async def _backend_health(request: web.Request, tx: Transaction) -> health.Health | None:
    """Return a listed public backend, None for any other."""
    settings, repo = request.app[CONTEXT].settings, addresses.repo(request, "org")
    hidden = await hidden_of(tx, settings, "public", repo)
    if hidden.has(repo) or all(map(hidden.has, settings.upstream_repo)):
        return None
    try:
        backend, _ = await health.read_backend(tx, hidden, repo, Window(days=BADGE_DAYS, now=tx.now))
    except Rejected:
        return None
    return backend if backend.listed else None


async def _known_branch(request: web.Request, tx: Transaction) -> Branch:
    """Return a public branch with commits; raises Rejected 404, the same for private and unknown ones."""
    repo = addresses.repo(request)
    hidden = await hidden_of(tx, request.app[CONTEXT].settings, "public", repo)
    if not request.app[CONTEXT].settings.is_upstream(repo):
        raise UNKNOWN_REPOSITORY.because(f"nothing of {repo[:200]} is known here")
    branch = await branch_reads.find_branch(tx, hidden, repo, BRANCH.read(request))
    if not branch.name or not (await branch_reads.newest_commits(tx, branch, before=None, limit=1))[0]:
        raise UNKNOWN_BRANCH.because(f"{repo} has no branch {branch.name[:200]} here")
    return branch


async def backend_badge(request: web.Request) -> web.Response:
    """Draw the pass rate of a backend; nothing tells an unknown backend from a private one."""
    async with request.app[CONTEXT].store.read() as tx:
        backend = await _backend_health(request, tx)
    if backend is None:
        return _cacheable_response(request, draw_badge("backend", UNKNOWN_BADGE, "idle").encode(), SVG_TYPE)
    rate = backend.stats.pass_rate
    message = (
        "silent"
        if backend.stale
        else "no result"
        if rate is None
        else f"{text.percent(rate)} in {BADGE_DAYS} d"
    )
    tone = "warn" if backend.stale else TONES[grade(rate)]
    return _cacheable_response(
        request, draw_badge(f"{backend.label} L{backend.level}", message, tone).encode(), SVG_TYPE
    )


async def branch_badge(request: web.Request) -> web.Response:
    """Draw how a branch stands; nothing tells an unknown branch from a private one."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        try:
            branch = await _known_branch(request, tx)
        except Rejected as refusal:
            if refusal.status != 404:
                raise
            return _cacheable_response(
                request, draw_badge("branch", UNKNOWN_BADGE, "idle").encode(), SVG_TYPE
            )
        standing = await context.resource(STANDINGS).read(tx, context.settings, branch)
    state = standing.state
    return _cacheable_response(
        request, draw_badge(branch.name or "branch", state, BRANCH_TONES[state]).encode(), SVG_TYPE
    )


async def backend_feed(request: web.Request) -> web.Response:
    """Send the notices about a backend."""
    async with request.app[CONTEXT].store.read() as tx:
        backend = await _backend_health(request, tx)
        if backend is None:
            raise NO_BACKEND.because("no backend of that name may be shown")
        notices = await rows.backend_notices(tx, backend.repo, limit=FEED_ENTRIES)
    page = f"/oot/{backend.repo}"
    feed = make_feed(
        notices,
        title=f"{backend.label} (L{backend.level})",
        url=request.app[CONTEXT].settings.url,
        address=f"{page}/feed.atom",
        page=page,
    )
    return _cacheable_response(request, feed, ATOM_TYPE)


async def branch_feed(request: web.Request) -> web.Response:
    """Send the notices about a branch."""
    async with request.app[CONTEXT].store.read() as tx:
        branch = await _known_branch(request, tx)
        repo, name = branch.repository["full_name"], branch.name
        notices = await rows.branch_notices(tx, repo, name, limit=FEED_ENTRIES)
    feed = make_feed(
        notices,
        title=f"{name} of {repo}",
        url=request.app[CONTEXT].settings.url,
        address=f"/{repo}/feed.atom?{urlencode({'branch': name})}",
        page=f"/hud/{repo}/{quote(name)}",
    )
    return _cacheable_response(request, feed, ATOM_TYPE)


FEED_VIEWS = tuple(
    Endpoint(web.get(path, in_render_thread(handler)))
    for path, handler in (
        (f"{_BACKEND}/badge.svg", backend_badge),
        (f"{_BACKEND}/feed.atom", backend_feed),
        (f"{_REPOSITORY}/badge.svg", branch_badge),
        (f"{_REPOSITORY}/feed.atom", branch_feed),
    )
)
