"""What issues disable, as a page and JSON, and the lists that CI fetches."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from bot.core.errors import Rejected
from bot.evidence.disabled import lists, pull_closes, rows
from bot.evidence.disabled.lists import LISTS, SENT_LISTS, disabled_tests, for_backend
from bot.evidence.disabled.tables import DisablingRow
from bot.jobs import branch_reads
from bot.oot.allowlist import versions as allowlists
from bot.web import openapi, parameters
from bot.web.answers import Answer, RowAnswer, Time, fill_struct, time
from bot.web.openapi import NOT_FOUND, UNKNOWN_BACKEND, UNKNOWN_REPOSITORY, DeclaredRefusal, unknown_backend
from bot.web.page_cache import in_render_thread
from bot.web.parameters import REPO, REPOSITORY, describe_parameters, open_query
from bot.web.view import Endpoint, Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from bot.db.transaction import Transaction
    from bot.evidence.disabled.tables import ListMark
    from bot.jobs.rows import RepositoryRow
    from bot.web.page_cache import CachedPage
    from bot.web.parameters import Query

ENTRIES_SHOWN = 50  # of one issue; the JSON has all
SHOWN = ("number", "title", "url", "author", "kind", "effect", "entries", "problems", "updated_at")
MOST_PULL = 2**31 - 1
KEY_BYTES = 200  # of an issue that a pull request closes
ISSUE = "https://github.com/owner/repo/issues/123"
# what lists.Tests and lists.Jobs are; generators of clients know no tuples
OF_TESTS = dict[str, Annotated[list[str | list[str]], Meta(min_length=3, max_length=3)]]
OF_JOBS = dict[str, Annotated[list[str], Meta(min_length=6, max_length=6)]]
NO_LIST = DeclaredRefusal(404, "no_list", "no list is made of the issues of this repository")

PULL = parameters.optional_whole(
    "pr", MOST_PULL, "a pull request: without the issues that its description or commits close"
)
BACKEND = parameters.another_repository("backend", "for a backend, owner/repo: with what its own issues say")
PARAMETERS = (REPO, PULL, BACKEND)
JOBS = openapi.Content(
    OF_JOBS,
    "by job: author, number and address of the issue, workflow, platform, configuration",
    {"pull / linux / test": ["octocat", "123", ISSUE, "pull", "linux", "test"]},
)


class DisabledEntry(Struct, frozen=True, kw_only=True):
    """A test or job, and the platforms on which the issue disables it; none: on all"""

    name: str
    platforms: list[str]


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


@dataclass(frozen=True, kw_only=True)
class DisablingIssues:
    """The issues of a repository that disable tests or jobs."""

    repo: str
    made_at: int | None  # None: no lists are made of them
    issues: list[DisablingRow]


@dataclass(frozen=True, kw_only=True)
class _Narrowed:
    """A list without the issues that a pull request closes, and perhaps for one backend."""

    repository: RepositoryRow
    mark: ListMark
    closed: Collection[pull_closes.Issue]
    backend: str  # empty: for none


async def read_issues(query: Query) -> DisablingIssues:
    """Read the issues of the repository; raises Rejected 404."""
    repository = (await branch_reads.find_branch(query.tx, query.hidden, query[REPO], "")).repository
    mark = await lists.find_mark(query.tx, repository["repository_id"], next(iter(LISTS)))
    return DisablingIssues(
        repo=repository["full_name"],
        made_at=mark and mark["made_at"],
        issues=await rows.disabling_issues(query.tx, repository["repository_id"]),
    )


async def has_lists(query: Query, repo: str) -> bool:
    """Whether issues of a repository disable anything, or lists are made from them."""
    with contextlib.suppress(Rejected):
        repository = (await branch_reads.find_branch(query.tx, query.hidden, repo, "")).repository
        identifier = repository["repository_id"]
        mark = await lists.find_mark(query.tx, identifier, next(iter(LISTS)))
        return mark is not None or bool(await rows.disabling_issues(query.tx, identifier))
    return False


def disabled_page(disabling: DisablingIssues) -> dict[str, Any]:
    """Return the values of the page."""
    effective = [issue for issue in disabling.issues if issue["listed"]]
    return {
        "repo": disabling.repo,
        "made_at": disabling.made_at,
        "tests": [issue for issue in effective if issue["kind"] == "test"],
        "jobs": [issue for issue in effective if issue["kind"] == "job"],
        "refused": [issue for issue in disabling.issues if not issue["listed"]],
        "most": ENTRIES_SHOWN,
        "lists": [(name, f"/api/ci/{disabling.repo}/{name}.json") for name in LISTS],
    }


def disabled_json(disabling: DisablingIssues) -> Disabled:
    """Return the JSON of the issues."""
    return Disabled(
        made_at=time(disabling.made_at), issues=[_issue_answer(issue) for issue in disabling.issues]
    )


ISSUES_VIEW = View(
    read=read_issues,
    parameters=(REPO,),
    page=Page(path=f"{REPOSITORY}/disabled", template="disabled.html", values=disabled_page),
    json=Json(
        path="/api/ci/disabled/{owner}/{repo}",
        answer=disabled_json,
        content=Disabled,
        name="disabled",
        summary="The issues that disable something, or do not, and why",
        topic=openapi.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=lambda disabling: {"repo": disabling.repo},
    ),
)


def _handler(name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    @in_render_thread
    async def answer(request: web.Request) -> web.Response:
        """Send the last version of a list, or a narrowed one."""
        async with open_query(request, PARAMETERS) as query:
            made = await _read_list(query, name)
        return lists.send_list(request, made)

    return answer


async def _read_list(query: Query, name: str) -> CachedPage:
    tx, repo, pull, backend = query.tx, query[REPO], query[PULL], query[BACKEND]
    repository = (await branch_reads.find_branch(tx, query.hidden, repo, "")).repository
    repository_id = repository["repository_id"]
    mark = await lists.find_mark(tx, repository_id, name)
    if mark is None:
        raise NO_LIST.because(f"no list is made of the issues of {repo}")
    closed = await pull_closes.issues_closed_by(tx, repository_id, pull) if pull else set()
    full_name = repository["full_name"].casefold()
    own = {(repository_id, number) for named, number in closed if named == full_name}
    if backend or (own and await rows.known_numbers(tx, own)):  # most pull requests close other issues
        return await _narrow(
            query, _Narrowed(repository=repository, mark=mark, closed=closed, backend=backend)
        )
    return await lists.page_for_request(tx, query.request, mark)


async def _narrow(query: Query, wanted: _Narrowed) -> CachedPage:
    """Narrow a list; a backend gets the tests that upstream disables on its device, and what its own issues say.

    Upstream's jobs are no jobs of the backend's.
    """
    tx, hidden = query.tx, query.hidden
    device, theirs, mark = "", None, None
    if wanted.backend:
        listed = await allowlists.read_in_force(tx)
        entry = listed.find(wanted.backend) if listed else None
        if entry is None or entry.level < rows.LEAST_LEVEL or hidden.has(entry.repo):
            raise unknown_backend(wanted.backend)
        device = entry.device or ""
        with contextlib.suppress(Rejected):  # nothing of it may be known yet
            theirs = (await branch_reads.find_branch(tx, hidden, entry.repo, "")).repository
            mark = await lists.find_mark(tx, theirs["repository_id"], wanted.mark["name"])
    marks = tuple(wanted.mark.values()), tuple((mark or {}).values())
    key = (marks, bool(wanted.backend), device, frozenset(wanted.closed))
    cache = query.request.app[SENT_LISTS]
    made = cache.find(key)
    if made is None:
        made = lists.seal_list(await _make(tx, wanted, theirs, device))
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
    tx: Transaction, repository: RepositoryRow, name: str, closed: Collection[pull_closes.Issue]
) -> dict[str, Any]:
    """Return a repository's list without the closed issues; its last version if none of them is the repository's."""
    repo, identifier = repository["full_name"], repository["repository_id"]
    if any(name == repo.casefold() for name, _ in closed):
        return LISTS[name](
            pull_closes.without_closed(await rows.effective_issues(tx, identifier), repo, closed)
        )
    made = await lists.last_body(tx, identifier, name)
    return dict(msgspec.json.decode(made)) if made else {}


def _list(name: str, operation: str, summary: str, content: openapi.Content) -> Endpoint:
    path = f"/api/ci/{{owner}}/{{repo}}/{name}.json"
    described = openapi.Operation(
        f"GET {path}",
        operation,
        summary,
        content,
        topic=openapi.CI,
        callers=openapi.READER,
        parameters=describe_parameters(PARAMETERS),
        refusals=[
            openapi.WRONG_PARAMETER,
            NOT_FOUND,
            UNKNOWN_REPOSITORY,
            NO_LIST,
            UNKNOWN_BACKEND,
            *openapi.READING,
        ],
        description="With an `ETag`, good for five minutes.",
    )
    return Endpoint(web.get(path, _handler(name)), described)


LIST_ENDPOINTS = (
    _list(
        "disabled-tests-condensed",
        "disabledTests",
        "Tests that CI may skip",
        openapi.Content(
            OF_TESTS,
            "by test: number and address of the issue, and the platforms (none: all)",
            {"test_x (__main__.TestY)": ["123", ISSUE, ["linux", "npu"]]},
        ),
    ),
    _list("disabled-jobs", "disabledJobs", "Jobs that CI may skip", JOBS),
    _list("unstable-jobs", "unstableJobs", "Jobs that may fail", JOBS),
)


def _issue_answer(issue: DisablingRow) -> DisablingIssue:
    effect = "none" if not issue["listed"] else "unstable" if issue["unstable"] else "disabled"
    entries = [DisabledEntry(name=name, platforms=platforms) for name, platforms in issue["entries"]]
    return fill_struct(DisablingIssue, issue, effect=effect, entries=entries)
