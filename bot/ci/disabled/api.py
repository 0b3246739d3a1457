"""GET /api/ci/{owner}/{repo}/disabled-tests-condensed.json and the like: lists that CI fetches; and their routes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bot.ci.disabled import page, pull_rows, rows, sent_lists
from bot.ci.disabled.list_cache import SENT_LISTS, BytesCache
from bot.ci.disabled.lists import LISTS, disabled_tests, for_backend
from bot.ci.disabled.tables import DisablingRow
from bot.ci.trunk import reading
from bot.core.errors import Rejected
from bot.oot.allowlist import rows as allowlists
from bot.web import access, html, parameters
from bot.web.answers import Answer, Time, fill, send, time
from bot.web.app_keys import CONTEXT
from bot.web.refusals import unknown_backend
from bot.web.render_thread import in_render_thread
from bot.web.row_answers import RowAnswer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from bot.ci.disabled.sent_lists import Mark
    from bot.ci.trunk.store.rows import RepositoryRow
    from bot.db.transaction import Transaction
    from bot.web.access import Hidden
    from bot.web.page_cache import CachedPage

MOST_PULL = 2**31 - 1
KEY_BYTES = 200  # of an issue that a pull request closes


class DisabledEntry(Struct, frozen=True, kw_only=True):
    """A test or job, and the platforms on which the issue disables it; none: on all"""

    name: str
    platforms: list[str]


SHOWN = ("number", "title", "url", "author", "kind", "effect", "entries", "problems", "updated_at")


class DisablingIssue(RowAnswer, row=DisablingRow, only=SHOWN, frozen=True):
    """An open issue that names tests or a job"""

    kind: Literal["test", "job"]
    effect: Annotated[Literal["disabled", "unstable", "none"], Meta(description="none: `problems` says why")]
    entries: list[DisabledEntry]
    problems: Annotated[list[str], Meta(description="what was not understood, or why it has no effect")]


class Disabled(Answer, frozen=True, kw_only=True):
    """What the issues of a repository disable"""

    made_at: Annotated[Time | None, Meta(description="when the lists were made last")]
    issues: list[DisablingIssue]


@in_render_thread
async def issues(request: web.Request) -> web.Response:
    """Answer with the issues as they were understood."""
    found = await page.find(request)
    return send(Disabled(made_at=time(found.made_at), issues=[_shown(one) for one in found.issues]))


def _shown(one: DisablingRow) -> DisablingIssue:
    effect = "none" if not one["listed"] else "unstable" if one["unstable"] else "disabled"
    entries = [DisabledEntry(name=name, platforms=platforms) for name, platforms in one["entries"]]
    return fill(DisablingIssue, one, effect=effect, entries=entries)


async def _listed(request: web.Request, *, name: str) -> web.Response:
    """Answer with a list: as it was made last, or for one backend."""
    context, repo = request.app[CONTEXT], parameters.repo(request)
    backend = parameters.given(request, "backend")
    pull = parameters.whole(request, "pr", default=0, most=MOST_PULL)
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx, *([backend] if backend else ()))
        repository = (await reading.find_branch(tx, hidden, repo, "")).repository
        repository_id = repository["repository_id"]
        mark = await sent_lists.mark(tx, repository_id, name)
        if mark is None:
            raise Rejected(404, "no_list", f"no list is made of the issues of {repo}")
        closed = await pull_rows.closed_by(tx, repository_id, pull) if pull else set()
        name_of_own = repository["full_name"].casefold()
        own = {(repository_id, number) for repo_, number in closed if repo_ == name_of_own}
        if backend or (own and await rows.known_numbers(tx, own)):  # most pull requests close other issues
            narrowed = _Narrowed(repository=repository, mark=mark, closed=closed, backend=backend)
            made = await _narrowed(tx, request, hidden, narrowed)
        else:
            made = await sent_lists.wanted(tx, request, mark)
    return sent_lists.answer(request, made)


def _handler(name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    return in_render_thread(partial(_listed, name=name))


@dataclass(frozen=True, kw_only=True)
class _Narrowed:
    """A list without the issues that a pull request closes, and perhaps for one backend."""

    repository: RepositoryRow
    mark: Mark
    closed: Collection[pull_rows.Issue]
    backend: str  # empty: for none


async def _narrowed(tx: Transaction, request: web.Request, hidden: Hidden, wanted: _Narrowed) -> CachedPage:
    """Return such a list.

    A backend gets upstream's tests that are disabled on its device, and what its own issues say. Upstream's jobs are
    no jobs of the backend's.
    """
    device, theirs, mark = "", None, None
    if wanted.backend:
        listed = await allowlists.in_force(tx)
        entry = listed.find(wanted.backend) if listed else None
        if entry is None or entry.level < rows.LEAST_LEVEL or hidden.has(entry.repo):
            raise unknown_backend(wanted.backend)
        device = entry.device or ""
        with contextlib.suppress(Rejected):  # nothing of it may be known yet
            theirs = (await reading.find_branch(tx, hidden, entry.repo, "")).repository
            mark = await sent_lists.mark(tx, theirs["repository_id"], wanted.mark.name)
    key = (wanted.mark, bool(wanted.backend), device, mark, frozenset(wanted.closed))
    cache = request.app[SENT_LISTS]
    made = cache.find(key)
    if made is None:
        made = sent_lists.sealed(await _made(tx, wanted, theirs, device))
        cache.store(key, made, len(made.body) + len(made.gzipped) + KEY_BYTES * len(wanted.closed))
    return made


async def _made(
    tx: Transaction, wanted: _Narrowed, theirs: RepositoryRow | None, device: str
) -> dict[str, Any]:
    name, closed = wanted.mark.name, wanted.closed
    if not wanted.backend:
        return await _content(tx, wanted.repository, name, closed)
    own = await _content(tx, theirs, name, closed) if theirs else {}
    if LISTS[name] is not disabled_tests:
        return own
    return dict(for_backend(await _content(tx, wanted.repository, name, closed), own, device))


async def _content(
    tx: Transaction, repository: RepositoryRow, name: str, closed: Collection[pull_rows.Issue]
) -> dict[str, Any]:
    """Return a repository's list without some issues; as it was made last where none of them is of the repository."""
    repo, identifier = repository["full_name"], repository["repository_id"]
    if any(one == repo.casefold() for one, _ in closed):
        return LISTS[name](pull_rows.without(await rows.listed(tx, identifier), repo, closed))
    made = await sent_lists.last(tx, identifier, name)
    return dict(msgspec.json.decode(made)) if made else {}


def setup(app: web.Application) -> None:
    """Add the page, the lists and their templates."""
    html.add_templates(app, page.TEMPLATES)
    html.add_tab(app, "tests", "Disabled", "/disabled", place=10)
    app[SENT_LISTS] = BytesCache()
    app.add_routes(
        [
            web.get(page.ADDRESS, page.disabled),
            web.get("/api/ci/disabled/{owner}/{repo}", issues),
            *(web.get(f"/api/ci/{{owner}}/{{repo}}/{name}.json", _handler(name)) for name in LISTS),
        ]
    )
