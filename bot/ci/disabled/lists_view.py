"""GET /api/ci/{owner}/{repo}/disabled-tests-condensed.json and the like: lists that CI fetches."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta

from bot.ci.disabled import list_rows, pull_rows, rows, sent_lists
from bot.ci.disabled.list_cache import SENT_LISTS
from bot.ci.disabled.lists import LISTS, disabled_tests, for_backend
from bot.ci.trunk import reading
from bot.core.errors import Rejected
from bot.oot.allowlist import rows as allowlists
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.asked import asking, describe
from bot.web.refusals import NOT_FOUND, UNKNOWN_BACKEND, UNKNOWN_REPOSITORY, Refused, unknown_backend
from bot.web.render_thread import in_render_thread
from bot.web.view import Endpoint
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from bot.ci.disabled.tables import ListMark
    from bot.ci.trunk.store.rows import RepositoryRow
    from bot.db.transaction import Transaction
    from bot.web.asked import Asked
    from bot.web.page_cache import CachedPage

MOST_PULL = 2**31 - 1
KEY_BYTES = 200  # of an issue that a pull request closes
ISSUE = "https://github.com/owner/repo/issues/123"
# what lists.Tests and lists.Jobs are; generators of clients know no tuples
OF_TESTS = dict[str, Annotated[list[str | list[str]], Meta(min_length=3, max_length=3)]]
OF_JOBS = dict[str, Annotated[list[str], Meta(min_length=6, max_length=6)]]
NO_LIST = Refused(404, "no_list", "no list is made of the issues of this repository")

PULL = declare.optional_whole(
    "pr", MOST_PULL, "a pull request: without the issues that its description or commits close"
)
BACKEND = declare.another_repository("backend", "for a backend, owner/repo: with what its own issues say")
PARAMETERS = (REPO, PULL, BACKEND)


def _handler(name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    @in_render_thread
    async def answer(request: web.Request) -> web.Response:
        """Answer with a list: as it was made last, or for one backend."""
        async with asking(request, PARAMETERS) as asked:
            made = await _read_list(asked, name)
        return sent_lists.send_list(request, made)

    return answer


async def _read_list(asked: Asked, name: str) -> CachedPage:
    tx, repo, pull, backend = asked.tx, asked[REPO], asked[PULL], asked[BACKEND]
    repository = (await reading.find_branch(tx, asked.hidden, repo, "")).repository
    repository_id = repository["repository_id"]
    mark = await list_rows.find_mark(tx, repository_id, name)
    if mark is None:
        raise NO_LIST.because(f"no list is made of the issues of {repo}")
    closed = await pull_rows.issues_closed_by(tx, repository_id, pull) if pull else set()
    full_name = repository["full_name"].casefold()
    own = {(repository_id, number) for named, number in closed if named == full_name}
    if backend or (own and await rows.known_numbers(tx, own)):  # most pull requests close other issues
        return await _narrow(
            asked, _Narrowed(repository=repository, mark=mark, closed=closed, backend=backend)
        )
    return await sent_lists.page_for_request(tx, asked.request, mark)


@dataclass(frozen=True, kw_only=True)
class _Narrowed:
    """A list without the issues that a pull request closes, and perhaps for one backend."""

    repository: RepositoryRow
    mark: ListMark
    closed: Collection[pull_rows.Issue]
    backend: str  # empty: for none


async def _narrow(asked: Asked, wanted: _Narrowed) -> CachedPage:
    """Return such a list: a backend gets upstream's tests that are disabled on its device, and what its own issues say.

    Upstream's jobs are no jobs of the backend's.
    """
    tx, hidden = asked.tx, asked.hidden
    device, theirs, mark = "", None, None
    if wanted.backend:
        listed = await allowlists.in_force(tx)
        entry = listed.find(wanted.backend) if listed else None
        if entry is None or entry.level < rows.LEAST_LEVEL or hidden.has(entry.repo):
            raise unknown_backend(wanted.backend)
        device = entry.device or ""
        with contextlib.suppress(Rejected):  # nothing of it may be known yet
            theirs = (await reading.find_branch(tx, hidden, entry.repo, "")).repository
            mark = await list_rows.find_mark(tx, theirs["repository_id"], wanted.mark["name"])
    marks = tuple(wanted.mark.values()), tuple((mark or {}).values())
    key = (marks, bool(wanted.backend), device, frozenset(wanted.closed))
    cache = asked.request.app[SENT_LISTS]
    made = cache.find(key)
    if made is None:
        made = sent_lists.seal_list(await _make(tx, wanted, theirs, device))
        cache.store(key, made, len(made.body) + len(made.gzipped) + KEY_BYTES * len(wanted.closed))
    return made


async def _make(
    tx: Transaction, wanted: _Narrowed, theirs: RepositoryRow | None, device: str
) -> dict[str, Any]:
    name, closed = wanted.mark["name"], wanted.closed
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
        return LISTS[name](pull_rows.without_closed(await rows.listed(tx, identifier), repo, closed))
    made = await list_rows.last_body(tx, identifier, name)
    return dict(msgspec.json.decode(made)) if made else {}


def _list(name: str, operation: str, summary: str, content: op.Content) -> Endpoint:
    path = f"/api/ci/{{owner}}/{{repo}}/{name}.json"
    described = op.Operation(
        f"GET {path}",
        operation,
        summary,
        content,
        topic=op.CI,
        callers=op.READER,
        parameters=describe(PARAMETERS),
        refusals=[op.WRONG_PARAMETER, NOT_FOUND, UNKNOWN_REPOSITORY, NO_LIST, UNKNOWN_BACKEND, *op.READING],
        description="With an `ETag`, good for five minutes.",
    )
    return Endpoint(web.get(path, _handler(name)), described)


JOBS = op.Content(
    OF_JOBS,
    "by job: author, number and address of the issue, workflow, platform, configuration",
    {"pull / linux / test": ["octocat", "123", ISSUE, "pull", "linux", "test"]},
)

ENDPOINTS = (
    _list(
        "disabled-tests-condensed",
        "disabledTests",
        "Tests that CI may skip",
        op.Content(
            OF_TESTS,
            "by test: number and address of the issue, and the platforms (none: all)",
            {"test_x (__main__.TestY)": ["123", ISSUE, ["linux", "npu"]]},
        ),
    ),
    _list("disabled-jobs", "disabledJobs", "Jobs that CI may skip", JOBS),
    _list("unstable-jobs", "unstableJobs", "Jobs that may fail", JOBS),
)
