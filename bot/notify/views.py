"""Feeds and badges of backends and branches; they show only what is public, to every reader."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from aiohttp import web

from bot.ci.trunk import reading
from bot.ci.trunk.conditions import STANDINGS
from bot.core import text
from bot.core.errors import Rejected
from bot.notify import rows
from bot.notify.badge import UNKNOWN, draw_badge
from bot.notify.feed import make_feed
from bot.notify.visibility import hidden_of
from bot.oot.pages import health
from bot.oot.pages.health import Window
from bot.oot.statistics.stats import grade
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.app_keys import CONTEXT
from bot.web.refusals import UNKNOWN_BRANCH, UNKNOWN_REPOSITORY, Refused
from bot.web.render_thread import in_render_thread
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from bot.ci.trunk.branch_standing import State
    from bot.ci.trunk.reading import Branch
    from bot.db.transaction import Transaction

ENTRIES = 50
MAX_AGE = 60  # seconds that an answer may be cached, as by GitHub's proxy of images
BADGE_DAYS = 30
BRANCH_MOST = 300  # characters
SVG, ATOM = "image/svg+xml", "application/atom+xml"
TONES = {"green": "good", "amber": "warn", "red": "bad", "none": "idle"}
BRANCH_TONES: dict[State, str] = {
    "green": "good", "broken": "bad", "red": "bad", "running": "wait", "unknown": "idle",
}  # fmt: skip
BRANCH = declare.text("branch", "name of the branch; without it the default branch", most=BRANCH_MOST)
NO_BACKEND = Refused(404, "unknown_backend", "not on the allowlist, or private")


def _answer(request: web.Request, body: bytes, kind: str) -> web.Response:
    """Return an answer that anybody may cache for a while; a caller that has it gets 304."""
    etag = hashlib.sha256(body).hexdigest()[:20]
    headers = {"Cache-Control": f"public, max-age={MAX_AGE}", "ETag": f'"{etag}"'}
    if any(tag.value in {etag, "*"} for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers={**headers, "Content-Type": f"{kind}; charset=utf-8"})


async def _backend_health(request: web.Request, tx: Transaction) -> health.Health | None:
    """Return a listed backend that everybody may see, None for any other."""
    settings, repo = request.app[CONTEXT].settings, parameters.repo(request, "org")
    hidden = await hidden_of(tx, settings, "public", repo)
    if hidden.has(repo) or all(map(hidden.has, settings.upstream_repo)):
        return None
    try:
        found, _ = await health.read_backend(tx, hidden, repo, Window(days=BADGE_DAYS, now=tx.now))
    except Rejected:
        return None
    return found if found.listed else None


async def _known_branch(request: web.Request, tx: Transaction) -> Branch:
    """Return a branch with commits that everybody may see; raises Rejected 404, the same for private and unknown."""
    repo = parameters.repo(request)
    hidden = await hidden_of(tx, request.app[CONTEXT].settings, "public", repo)
    if not request.app[CONTEXT].settings.is_upstream(repo):
        raise UNKNOWN_REPOSITORY.because(f"nothing of {repo[:200]} is known here")
    branch = await reading.find_branch(tx, hidden, repo, BRANCH.read(request))
    if not branch.name or not (await reading.newest_commits(tx, branch, before=None, limit=1))[0]:
        raise UNKNOWN_BRANCH.because(f"{repo} has no branch {branch.name[:200]} here")
    return branch


async def backend_badge(request: web.Request) -> web.Response:
    """Draw the pass rate of a backend; nothing tells an unknown backend from a private one."""
    async with request.app[CONTEXT].store.read() as tx:
        one = await _backend_health(request, tx)
    if one is None:
        return _answer(request, draw_badge("backend", UNKNOWN, "idle").encode(), SVG)
    rate = one.stats.pass_rate
    message = (
        "silent" if one.stale else "no result" if rate is None else f"{text.percent(rate)} in {BADGE_DAYS} d"
    )
    tone = "warn" if one.stale else TONES[grade(rate)]
    return _answer(request, draw_badge(f"{one.label} L{one.level}", message, tone).encode(), SVG)


async def branch_badge(request: web.Request) -> web.Response:
    """Draw how a branch stands; nothing tells an unknown branch from a private one."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        try:
            branch = await _known_branch(request, tx)
        except Rejected as refusal:
            if refusal.status != 404:
                raise
            return _answer(request, draw_badge("branch", UNKNOWN, "idle").encode(), SVG)
        standing = await context.resource(STANDINGS).read(tx, context.settings, branch)
    state = standing.state
    return _answer(request, draw_badge(branch.name or "branch", state, BRANCH_TONES[state]).encode(), SVG)


async def backend_feed(request: web.Request) -> web.Response:
    """Send the notices about a backend."""
    async with request.app[CONTEXT].store.read() as tx:
        one = await _backend_health(request, tx)
        if one is None:
            raise NO_BACKEND.because("no backend of that name may be shown")
        notices = await rows.of_backend(tx, one.repo, limit=ENTRIES)
    page = f"/oot/{one.repo}"
    feed = make_feed(
        notices,
        title=f"{one.label} (L{one.level})",
        url=request.app[CONTEXT].settings.url,
        address=f"{page}/feed.atom",
        page=page,
    )
    return _answer(request, feed, ATOM)


async def branch_feed(request: web.Request) -> web.Response:
    """Send the notices about a branch."""
    async with request.app[CONTEXT].store.read() as tx:
        branch = await _known_branch(request, tx)
        repo, name = branch.repository["full_name"], branch.name
        notices = await rows.of_branch(tx, repo, name, limit=ENTRIES)
    feed = make_feed(
        notices,
        title=f"{name} of {repo}",
        url=request.app[CONTEXT].settings.url,
        address=f"/{repo}/feed.atom?{urlencode({'branch': name})}",
        page=f"/hud/{repo}/{quote(name)}",
    )
    return _answer(request, feed, ATOM)


_BACKEND, _REPOSITORY = "/oot/{org}/{repo}", declare.REPOSITORY
VIEWS = tuple(
    Endpoint(web.get(path, in_render_thread(handler)))
    for path, handler in (
        (f"{_BACKEND}/badge.svg", backend_badge),
        (f"{_BACKEND}/feed.atom", backend_feed),
        (f"{_REPOSITORY}/badge.svg", branch_badge),
        (f"{_REPOSITORY}/feed.atom", branch_feed),
    )
)
