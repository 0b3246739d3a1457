"""Addresses that dashboards of PyTorch's cross-repository CI relay ask for, answered from our rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from aiohttp import web
from msgspec import Struct

from bot.core.errors import Rejected
from bot.core.json_fields import FULL_NAME
from bot.ingest.record_rows import PullRow, PushRow
from bot.oot.allowlist import versions as allowlists
from bot.oot.allowlist.entry import Level
from bot.oot.statistics.readiness import DEMOTION_DAYS, judge_demotion
from bot.pages.backends import job_rows
from bot.pages.backends.interface import BACKEND, NOTHING_TO_SHOW, NOWHERE
from bot.pages.backends.levels import measure_backend
from bot.web import addresses
from bot.web import openapi as op
from bot.web.answers import RowAnswer, matching
from bot.web.page_cache import in_render_thread
from bot.web.parameters import Parameter, describe_parameters, open_query
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from bot.oot.statistics.readiness import RelayMeasures

MOST_VALUES = 50  # pull requests or commits of one answer: the first
ONE_SHA = re.compile(r"[0-9a-fA-F]{1,64}")
ONE_NUMBER = re.compile(r"[0-9]{1,18}")  # 0 stands for no pull request


class CriterionStatus(Struct, frozen=True):
    """One criterion of a backend; `met` is null where there is nothing to judge"""

    criterion: str
    measured: str
    target: str
    met: bool | None


class BackendStatus(Struct, frozen=True, rename="camel"):
    """An L3 backend by the criteria for staying there"""

    repo: str
    level: str
    change: Literal["demote"] | None
    no_data: bool
    window_days: int
    criteria: list[CriterionStatus]
    shared_failures: int  # that upstream's own jobs share: they do not count


class LevelStatus(Struct, frozen=True):
    """The L3 backends of the allowlist in force"""

    repos: list[BackendStatus]


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


def send_json(answer: object) -> web.Response:
    """Answer with JSON."""
    headers = {"Content-Type": "application/json; charset=utf-8"}
    return web.Response(body=msgspec.json.encode(answer), headers=headers)


def crcr_operation(
    path: str,
    name: str,
    summary: str,
    kind: Any,
    *known: Parameter[Any],
    refusals: tuple[op.Refusal, ...] = (op.WRONG_PARAMETER,),
) -> op.Operation:
    """Describe an address for the interface's document."""
    return op.Operation(
        f"GET {path}",
        name,
        summary,
        op.Content(kind, f"{summary}, as dashboards of the cross-repository CI relay ask for them"),
        topic=op.Topic("CRCR", "What dashboards of the cross-repository CI relay ask for."),
        callers=op.READER,
        refusals=[*refusals, *op.READING],
        parameters=describe_parameters(known),
    )


@in_render_thread
async def send_level_status(request: web.Request) -> web.Response:
    """Answer with the L3 backends and whether each should be demoted; silence alone demotes nobody."""
    async with open_query(request, ()) as query:
        query.hidden.check_upstream(query.settings)
        in_force = await allowlists.read_in_force(query.tx)
        statuses = [
            _backend_status(
                entry.repo,
                await measure_backend(query, entry, days=DEMOTION_DAYS),
            )
            for entry in (in_force.at(Level.L3) if in_force else ())
        ]
    return send_json(LevelStatus(repos=statuses))


LEVEL_STATUS = Endpoint(
    web.get("/api/crcr/level-status", send_level_status),
    crcr_operation(
        "/api/crcr/level-status",
        "crcrLevelStatus",
        "L3 backends and whether to demote them",
        LevelStatus,
        refusals=(NOTHING_TO_SHOW,),
    ),
)


def _needed_repo(request: web.Request) -> str:
    repo = addresses.needed(request, "repo")
    if not FULL_NAME.fullmatch(repo):
        raise Rejected(400, "invalid_parameter", "repo is written as owner/name")
    return repo


def _needed_list(name: str, pattern: re.Pattern[str], description: str) -> Parameter[list[str]]:
    """Return a parameter of several values, of which the first MOST_VALUES count; raises Rejected 400 when read."""

    def read(request: web.Request) -> list[str]:
        values = [text.strip() for text in addresses.needed(request, name).split(",")]
        wanted = [text for text in values if text][:MOST_VALUES]
        if not wanted or not all(map(pattern.fullmatch, wanted)):
            detail = f"{name} must be one or more, with commas between, each like {pattern.pattern}"
            raise Rejected(400, "invalid_parameter", detail)
        return wanted

    kind = Annotated[str, matching(f"{pattern.pattern}(,{pattern.pattern}){{0,{MOST_VALUES - 1}}}")]
    return Parameter(name, read, [], (op.needed(name, kind, description),))


REPO = Parameter(
    "repo",
    _needed_repo,
    "",
    (op.needed("repo", Annotated[str, matching(FULL_NAME)], "owner/name"),),
    names_repository=True,
)
NUMBERS = _needed_list("prs", ONE_NUMBER, f"numbers, at most {MOST_VALUES}")
SHAS = _needed_list("shas", ONE_SHA, f"at most {MOST_VALUES}")


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
    async with open_query(request, ()) as query:
        query.hidden.check_upstream(query.settings)
        in_force = await allowlists.read_in_force(query.tx)
    listed = {
        level.name: [
            ListedBackend(repo=entry.repo, oncalls=list(entry.oncalls))
            for entry in (in_force.at(level) if in_force else ())
        ]
        for level in Level
    }
    return send_json(listed)


@in_render_thread
async def send_pulls(request: web.Request) -> web.Response:
    """Answer with the titles of some pull requests, in the order asked."""
    async with open_query(request, (REPO, NUMBERS)) as query:
        numbers = [int(text) for text in query[NUMBERS]]
        where = NOWHERE if query.hidden.has(query[REPO]) else query[REPO]
        titles = await job_rows.titles_of_pulls(query.tx, where, numbers)
    return send_json([PullInfo(number, *titles.get(number, ("", ""))) for number in numbers])


@in_render_thread
async def send_commits(request: web.Request) -> web.Response:
    """Answer with the titles of some commits, in the order asked."""
    async with open_query(request, (REPO, SHAS)) as query:
        where = NOWHERE if query.hidden.has(query[REPO]) else query[REPO]
        titles = await job_rows.titles_of_commits(query.tx, where, {sha.lower() for sha in query[SHAS]})
    return send_json([CommitInfo(sha, *titles.get(sha.lower(), ("", ""))) for sha in query[SHAS]])


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
            refusals=(NOTHING_TO_SHOW,),
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


def _backend_status(repo: str, measures: RelayMeasures) -> BackendStatus:
    criteria = judge_demotion(measures)
    return BackendStatus(
        repo=repo,
        level="L3",
        change="demote" if any(criterion.met is False for criterion in criteria) else None,
        no_data=not measures.jobs,
        window_days=DEMOTION_DAYS,
        criteria=[
            CriterionStatus(criterion.name, criterion.measured, criterion.target, criterion.met)
            for criterion in criteria
        ],
        shared_failures=measures.shared,
    )


def _redirect(request: web.Request, path: str) -> web.Response:
    """Redirect to another page of ours and keep the query."""
    location = request.rel_url.with_path(path, keep_query=True)
    return web.Response(status=302, headers={"Location": str(location)})
