"""Addresses that dashboards of PyTorch's cross-repository CI relay ask for, answered from our rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Struct

from bot.core.errors import Rejected
from bot.core.json_fields import FULL_NAME
from bot.oot.allowlist import rows as allowlists
from bot.oot.allowlist.entry import Level
from bot.oot.pages import rows
from bot.oot.pages.pulls import NOWHERE
from bot.web import access, parameters
from bot.web import operations as op
from bot.web.answers import matching
from bot.web.app_keys import CONTEXT
from bot.web.render_thread import in_render_thread

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

MOST = 50  # pull requests or commits of one answer: the first
ONE_SHA = re.compile(r"[0-9a-fA-F]{1,64}")
ONE_NUMBER = re.compile(r"[0-9]{1,18}")  # 0 stands for no pull request


class ListedBackend(Struct, frozen=True):
    """A backend of the allowlist."""

    repo: str
    oncalls: list[str]


class PullInfo(Struct, frozen=True, rename="camel"):
    """Title and author of a pull request; both are empty where it is unknown."""

    pr_number: int
    title: str
    author: str


class CommitInfo(Struct, frozen=True):
    """Title and author of a commit; both are empty where it is unknown."""

    sha: str
    title: str
    author: str


async def overview(_request: web.Request) -> web.Response:
    """Redirect to the health page."""
    return web.Response(status=302, headers={"Location": "/oot"})


async def backend(request: web.Request) -> web.Response:
    """Redirect to a backend's page."""
    return web.Response(status=302, headers={"Location": f"/oot/{parameters.repo(request, 'org')}"})


@in_render_thread
async def allowlist(request: web.Request) -> web.Response:
    """Answer with the backends in force, by level."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        (await access.hidden_from(request, tx)).check_upstream(context.settings)
        in_force = await allowlists.in_force(tx)
    listed = {
        level.name: [
            ListedBackend(repo=entry.repo, oncalls=list(entry.oncalls))
            for entry in (in_force.at(level) if in_force else ())
        ]
        for level in Level
    }
    return _send(listed)


@in_render_thread
async def pull_info(request: web.Request) -> web.Response:
    """Answer with the titles of some pull requests, in the order asked."""
    numbers = [int(text) for text in _asked(request, "prs", ONE_NUMBER)]
    async with request.app[CONTEXT].store.read() as tx:
        found = await rows.titles(tx, await _repo(request, tx), numbers)
    titles = [(number, *found.get(number, ("", ""))) for number in numbers]
    return _send([PullInfo(pr_number=number, title=title, author=author) for number, title, author in titles])


@in_render_thread
async def commit_info(request: web.Request) -> web.Response:
    """Answer with the titles of some commits, in the order asked."""
    shas = _asked(request, "shas", ONE_SHA)
    async with request.app[CONTEXT].store.read() as tx:
        found = await rows.commit_titles(tx, await _repo(request, tx), {sha.lower() for sha in shas})
    titles = [(sha, *found.get(sha.lower(), ("", ""))) for sha in shas]
    return _send([CommitInfo(sha=sha, title=title, author=author) for sha, title, author in titles])


def _asked(request: web.Request, name: str, one: re.Pattern[str]) -> list[str]:
    """Return the values asked for, the first of them; raises Rejected 400."""
    found = [text.strip() for text in parameters.needed(request, name).split(",")]
    wanted = [text for text in found if text][:MOST]
    if not wanted or not all(map(one.fullmatch, wanted)):
        detail = f"{name} must be one or more, with commas between, each like {one.pattern}"
        raise Rejected(400, "invalid_parameter", detail)
    return wanted


async def _repo(request: web.Request, tx: Transaction) -> str:
    """Return the repository asked about; one that is hidden is searched for under a name that cannot exist."""
    repo = parameters.needed(request, "repo")
    if not FULL_NAME.fullmatch(repo):
        raise Rejected(400, "invalid_parameter", "repo is written as owner/name")
    return NOWHERE if (await access.hidden_from(request, tx, repo)).has(repo) else repo


def _send(answer: object) -> web.Response:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    return web.Response(body=msgspec.json.encode(answer), headers=headers)


def _list_of(one: re.Pattern[str]) -> Any:
    return Annotated[str, matching(f"{one.pattern}(,{one.pattern}){{0,{MOST - 1}}}")]


REPO = op.needed("repo", Annotated[str, matching(FULL_NAME)], "owner/name")
OPERATIONS = tuple(
    op.Operation(
        f"GET /api/crcr/{name}",
        operation,
        summary,
        op.Content(kind, f"{summary}, as dashboards of the cross-repository CI relay ask for them"),
        topic=op.Topic("CRCR", "What dashboards of the cross-repository CI relay ask for."),
        callers=op.READER,
        refusals=refusals,
        parameters=asked,
    )
    for name, operation, summary, kind, refusals, asked in (
        (
            "allowlist",
            "crcrAllowlist",
            "Backends by level",
            dict[str, list[ListedBackend]],
            [(404, "not_found", "nothing of that name may be shown"), *op.READING],
            [],
        ),
        (
            "pr-info",
            "crcrPullRequests",
            "Titles of pull requests",
            list[PullInfo],
            [op.WRONG_PARAMETER, *op.READING],
            [REPO, op.needed("prs", _list_of(ONE_NUMBER), f"numbers, at most {MOST}")],
        ),
        (
            "commit-info",
            "crcrCommits",
            "Titles of commits",
            list[CommitInfo],
            [op.WRONG_PARAMETER, *op.READING],
            [REPO, op.needed("shas", _list_of(ONE_SHA), f"at most {MOST}")],
        ),
    )
)
routes: list[web.RouteDef] = [
    web.get("/crcr", overview),
    web.get("/crcr/{org}/{repo}", backend),
    web.get("/api/crcr/allowlist", allowlist),
    web.get("/api/crcr/pr-info", pull_info),
    web.get("/api/crcr/commit-info", commit_info),
]
