"""GET /{owner}/{repo}/pull/{number} and its JSON: one head of a pull request and the backends on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from aiohttp import web

from bot.core.errors import Rejected
from bot.core.links import web_url
from bot.oot.pages import pulls, rows
from bot.oot.pages.backend_parameters import NOTHING, RESULTS
from bot.oot.pages.commit_failures import read_failure_list
from bot.oot.pages.commit_page import answer_unknown
from bot.oot.pages.earlier_attempts import Current, list_earlier
from bot.oot.pages.pull_answer import PullAnswer, answer_pull
from bot.oot.pages.upstream_ci import read_upstream_ci
from bot.oot.pages.visible_names import hide_in_jobs, read_names
from bot.oot.publish import check_run_text
from bot.oot.verdict.failed_jobs import list_judged, list_passed, list_reported
from bot.oot.verdict.private_view import hide_in_backend
from bot.web import blocks, missing, parameters
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import matching
from bot.web.asked import Parameter, asking
from bot.web.html import page, render
from bot.web.subjects import PullSubject
from bot.web.view import Endpoint, Json, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.oot.pages.earlier_attempts import EarlierFailure
    from bot.oot.pages.pulls import PullPage
    from bot.oot.pages.upstream_ci import UpstreamCi
    from bot.oot.results.tables import JobRow
    from bot.oot.verdict.failure import FailureList
    from bot.web.asked import Asked
    from bot.web.blocks import Block

RUNNING = 15  # seconds until a page on which something runs is reloaded
MOST_ATTEMPTS = 1_000  # jobs of a head, all attempts counted, that are looked at
NUMBER = declare.identifier("number", "number of the pull request")
SHA = Parameter(
    "sha",
    parameters.sha,
    None,
    (
        op.in_query(
            "sha", Annotated[str, matching(parameters.SHA)], "one of its heads, or the beginning of its SHA"
        ),
    ),
)
BACKEND = Parameter("backend", lambda request: request.query.get("backend", ""), "", only="page")
LIMIT = declare.limit(1_000, most=5_000)
PARAMETERS = (REPO, NUMBER, SHA, BACKEND, LIMIT)


@dataclass(frozen=True, kw_only=True)
class PullJobs:
    """A pull request with its newest jobs."""

    page: PullPage
    failures: FailureList
    jobs: list[JobRow]
    more: bool
    prefix: str  # of check runs' names


@dataclass(frozen=True, kw_only=True)
class _ShownPull:
    """A pull request as its page shows it."""

    page: PullPage
    own: UpstreamCi
    failures: FailureList
    earlier: list[EarlierFailure]  # of attempts that do not count any more
    blocks: list[Block]  # of other features


@page
async def show_pull(request: web.Request) -> web.Response:
    """Show a pull request, or what to check where it is unknown."""
    try:
        async with asking(request, PARAMETERS, form="page") as asked:
            shown = await _read_page(asked)
    except Rejected as refusal:
        if refusal.code != pulls.UNKNOWN_PULL.code:
            raise
        if path := await missing.find_instead(request, refusal.code):
            return web.Response(status=302, headers={"Location": path})
        named = f"pull request #{request.match_info['number'][:20]}"
        number = parameters.number(request.match_info["number"])
        return await answer_unknown(request, parameters.repo(request), named, f"pull/{number}")
    settings = asked.settings
    unfinished = shown.page.unfinished or (shown.page.current and shown.own.running)
    sha = f"?sha={shown.page.sha}" if asked[SHA] else ""
    return render(
        request,
        "pull.html",
        gate_name=check_run_text.gate_name(settings.check_prefix),
        gate_url=_gate_url(settings, shown.page),
        fresh=parameters.read_refresh(request, default=RUNNING if unfinished else 0),
        shown=shown.page,
        wanted=asked[BACKEND],
        own=shown.own,
        failures=shown.failures,
        earlier=shown.earlier,
        blocks=shown.blocks,
        github=web_url(settings.github_api_url),
        json_url=f"/api/oot/pulls/{shown.page.repo}/{asked[NUMBER]}{sha}",
    )


async def _read_page(asked: Asked) -> _ShownPull:
    tx, settings = asked.tx, asked.settings
    found = await pulls.read_pull_page(
        tx,
        settings,
        asked.hidden,
        repo=asked[REPO],
        number=asked[NUMBER],
        sha=asked[SHA],
        full=pulls.FULL,
        wanted=asked[BACKEND],
    )
    found = await _hide_in_page(asked, found)
    base_ref = found.record["base_ref"] if found.record else None
    subject = PullSubject(
        repo=found.repo,
        number=asked[NUMBER],
        head_sha=found.sha,
        base_ref=base_ref,
        github=web_url(settings.github_api_url),
        settings=settings,
    )
    own, failures = await _read_failures(asked, found)
    return _ShownPull(
        page=pulls.with_failures(found, failures),
        own=own,
        failures=failures,
        earlier=await _read_earlier(asked, found, own),
        blocks=await blocks.gather(asked.context.features, "pull", tx, subject),
    )


async def _read_failures(asked: Asked, found: PullPage) -> tuple[UpstreamCi, FailureList]:
    """Return upstream's own CI on the head shown, and all that failed on it."""
    own = await read_upstream_ci(asked, found.repo, found.sha or "")
    backends = [section.backend for section in found.sections]
    failures = await read_failure_list(
        asked,
        found.repo,
        found.sha or "",
        reported=list_reported(backends),
        passed=list_passed(backends),
        judged=list_judged(backends),
        own=own,
        of_pull=True,
        base_ref=found.record["base_ref"] if found.record else None,
    )
    return own, failures


async def _read_earlier(asked: Asked, found: PullPage, own: UpstreamCi) -> list[EarlierFailure]:
    """Return what earlier attempts failed on the head shown."""
    jobs = await rows.jobs_of_pull(
        asked.tx, found.names, asked[NUMBER], sha=found.sha or "", limit=MOST_ATTEMPTS
    )
    current = {
        section.backend.repo.lower(): Current(label=section.backend.label, jobs=section.backend.jobs)
        for section in found.sections
        if not section.relayed
    }
    return list_earlier(await hide_in_jobs(asked, jobs), current, own.jobs, found.repo)


def _gate_url(settings: Settings, found: PullPage) -> str | None:
    """Return the address of the gate's check run on GitHub, None before it was written."""
    if found.gate is None or found.gate.check_run_id is None:
        return None
    return f"{web_url(settings.github_api_url)}/{found.repo}/runs/{found.gate.check_run_id}"


async def read_pull_jobs(asked: Asked) -> PullJobs:
    """Read a pull request and the newest jobs of all its heads, or only of ?sha=; raises Rejected 404."""
    number, sha, limit = asked[NUMBER], asked[SHA], asked[LIMIT]
    found = await pulls.read_pull_page(
        asked.tx, asked.settings, asked.hidden, repo=asked[REPO], number=number, sha=sha
    )
    only = None if sha is None else found.sha
    jobs = await rows.jobs_of_pull(asked.tx, found.names, number, sha=only, limit=limit + 1)
    shown = await _hide_in_page(asked, found)
    _, failures = await _read_failures(asked, shown)
    return PullJobs(
        page=pulls.with_failures(shown, failures),
        failures=failures,
        jobs=await hide_in_jobs(asked, jobs[-limit:]),
        more=len(jobs) > limit,
        prefix=asked.settings.check_prefix,
    )


async def _hide_in_page(asked: Asked, found: PullPage) -> PullPage:
    """Return the page without the names that the request may not see."""
    names = await read_names(asked, (one.backend.repo for one in found.sections))
    sections = tuple(replace(one, backend=hide_in_backend(one.backend, names)) for one in found.sections)
    return replace(found, sections=sections)


def answer(found: PullJobs) -> PullAnswer:
    """Return a pull request: its heads, the backends on one, jobs."""
    return answer_pull(found.page, found.failures, found.jobs, more=found.more, prefix=found.prefix)


PAGE = Endpoint(web.get("/{owner}/{repo}/pull/{number}", show_pull))
VIEW = View(
    read=read_pull_jobs,
    parameters=PARAMETERS,
    json=Json(
        path="/api/oot/pulls/{owner}/{repo}/{number}",
        answer=answer,
        content=PullAnswer,
        name="pullRequest",
        summary="Results of a pull request",
        topic=RESULTS,
        refusals=(NOTHING, pulls.UNKNOWN_PULL, pulls.UNKNOWN_HEAD),
    ),
)
