"""Addresses that dashboards of PyTorch's cross-repository CI relay ask for, answered from our rows."""

from __future__ import annotations

import re
from typing import Annotated

from aiohttp import web
from msgspec import Struct

from bot.core.errors import Rejected
from bot.core.json_fields import FULL_NAME
from bot.ingest.rows import PullRow, PushRow
from bot.oot.allowlist import rows as allowlists
from bot.oot.allowlist.entry import Level
from bot.oot.pages import rows
from bot.oot.pages.backend_parameters import BACKEND, NOTHING
from bot.oot.pages.crcr_answers import crcr_operation, send
from bot.oot.pages.level_status import ENDPOINT as LEVEL_STATUS
from bot.oot.pages.pulls import NOWHERE
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import matching
from bot.web.asked import Parameter, asking
from bot.web.render_thread import in_render_thread
from bot.web.row_answers import RowAnswer
from bot.web.view import Endpoint

MOST = 50  # pull requests or commits of one answer: the first
ONE_SHA = re.compile(r"[0-9a-fA-F]{1,64}")
ONE_NUMBER = re.compile(r"[0-9]{1,18}")  # 0 stands for no pull request


def _needed_repo(request: web.Request) -> str:
    repo = parameters.needed(request, "repo")
    if not FULL_NAME.fullmatch(repo):
        raise Rejected(400, "invalid_parameter", "repo is written as owner/name")
    return repo


def _needed_list(name: str, one: re.Pattern[str], description: str) -> Parameter[list[str]]:
    """Return a parameter of several values, of which the first count; reading it raises Rejected 400."""

    def read(request: web.Request) -> list[str]:
        found = [text.strip() for text in parameters.needed(request, name).split(",")]
        wanted = [text for text in found if text][:MOST]
        if not wanted or not all(map(one.fullmatch, wanted)):
            detail = f"{name} must be one or more, with commas between, each like {one.pattern}"
            raise Rejected(400, "invalid_parameter", detail)
        return wanted

    kind = Annotated[str, matching(f"{one.pattern}(,{one.pattern}){{0,{MOST - 1}}}")]
    return Parameter(name, read, [], (op.needed(name, kind, description),))


REPO = Parameter(
    "repo",
    _needed_repo,
    "",
    (op.needed("repo", Annotated[str, matching(FULL_NAME)], "owner/name"),),
    names_repository=True,
)
NUMBERS = _needed_list("prs", ONE_NUMBER, f"numbers, at most {MOST}")
SHAS = _needed_list("shas", ONE_SHA, f"at most {MOST}")


class ListedBackend(Struct, frozen=True):
    """A backend of the allowlist."""

    repo: str
    oncalls: list[str]


class PullInfo(
    RowAnswer,
    row=PullRow,
    only=("number", "title", "user_login"),
    rename={"number": "prNumber", "user_login": "author"},
    frozen=True,
):
    """Title and author of a pull request; both are empty where it is unknown."""

    number: int
    title: str
    user_login: str


class CommitInfo(
    RowAnswer,
    row=PushRow,
    only=("after", "head_commit_message", "pusher_name"),
    rename={"after": "sha", "head_commit_message": "title", "pusher_name": "author"},
    frozen=True,
):
    """Title and author of a commit; both are empty where it is unknown."""

    after: str
    head_commit_message: str
    pusher_name: str


async def redirect_to_overview(request: web.Request) -> web.Response:
    """Redirect to the health page."""
    return _redirect(request, "/oot")


async def redirect_to_metrics(request: web.Request) -> web.Response:
    """Redirect to the numbers of all backends."""
    return _redirect(request, "/oot/metrics")


async def redirect_to_backend(request: web.Request) -> web.Response:
    """Redirect to a backend's page."""
    return _redirect(request, f"/oot/{BACKEND.read(request)}")


@in_render_thread
async def send_allowlist(request: web.Request) -> web.Response:
    """Answer with the backends in force, by level."""
    async with asking(request, ()) as asked:
        asked.hidden.check_upstream(asked.settings)
        in_force = await allowlists.in_force(asked.tx)
    listed = {
        level.name: [
            ListedBackend(repo=entry.repo, oncalls=list(entry.oncalls))
            for entry in (in_force.at(level) if in_force else ())
        ]
        for level in Level
    }
    return send(listed)


@in_render_thread
async def send_pulls(request: web.Request) -> web.Response:
    """Answer with the titles of some pull requests, in the order asked."""
    async with asking(request, (REPO, NUMBERS)) as asked:
        numbers = [int(text) for text in asked[NUMBERS]]
        where = NOWHERE if asked.hidden.has(asked[REPO]) else asked[REPO]
        found = await rows.titles_of_pulls(asked.tx, where, numbers)
    return send([PullInfo(number, *found.get(number, ("", ""))) for number in numbers])


@in_render_thread
async def send_commits(request: web.Request) -> web.Response:
    """Answer with the titles of some commits, in the order asked."""
    async with asking(request, (REPO, SHAS)) as asked:
        where = NOWHERE if asked.hidden.has(asked[REPO]) else asked[REPO]
        found = await rows.titles_of_commits(asked.tx, where, {sha.lower() for sha in asked[SHAS]})
    return send([CommitInfo(sha, *found.get(sha.lower(), ("", ""))) for sha in asked[SHAS]])


def _redirect(request: web.Request, path: str) -> web.Response:
    """Return a redirect to a page of ours, which keeps the query."""
    location = request.rel_url.with_path(path, keep_query=True)
    return web.Response(status=302, headers={"Location": str(location)})


ENDPOINTS = (
    Endpoint(web.get("/crcr", redirect_to_overview)),
    Endpoint(web.get("/crcr/metrics", redirect_to_metrics)),
    Endpoint(web.get("/crcr/{org}/{repo}", redirect_to_backend)),
    Endpoint(
        web.get("/api/crcr/allowlist", send_allowlist),
        crcr_operation(
            "/api/crcr/allowlist",
            "crcrAllowlist",
            "Backends by level",
            dict[str, list[ListedBackend]],
            refusals=(NOTHING,),
        ),
    ),
    LEVEL_STATUS,
    Endpoint(
        web.get("/api/crcr/pr-info", send_pulls),
        crcr_operation(
            "/api/crcr/pr-info",
            "crcrPullRequests",
            "Titles of pull requests",
            list[PullInfo],
            REPO,
            NUMBERS,
        ),
    ),
    Endpoint(
        web.get("/api/crcr/commit-info", send_commits),
        crcr_operation(
            "/api/crcr/commit-info",
            "crcrCommits",
            "Titles of commits",
            list[CommitInfo],
            REPO,
            SHAS,
        ),
    ),
)
