"""GET /{owner}/{repo}/pull/{number} and its JSON: a pull request, its gate, backends and failures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from aiohttp import web
from msgspec import Meta, Struct

from bot.core.errors import Rejected
from bot.core.escaping import web_url
from bot.ingest.record_rows import PullRow
from bot.job_reports import benchmarks
from bot.oot.publish import check_text
from bot.oot.results.tables import JobRow
from bot.oot.verdict.failure import list_judged, list_passed, list_reported
from bot.oot.verdict.gate import GateState, describe_gate_failure
from bot.oot.verdict.pull_state import hide_in_backend
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import History, Role
from bot.pages.backends import job_rows
from bot.pages.backends.interface import (
    NOTHING_TO_SHOW,
    RESULTS,
    Job,
    Level,
    Source,
    hide_in_jobs,
    job_answer,
    read_names,
)
from bot.pages.culprits import sections as culprits
from bot.pages.jobs import artifact_pages, run
from bot.pages.pulls import pull_request
from bot.pages.pulls.commit import answer_unknown
from bot.pages.pulls.dispatch_explanation import describe_asked
from bot.pages.pulls.failures import CurrentJobs, list_earlier, read_failure_list, read_upstream_ci
from bot.pages.tests import views as tests
from bot.pages.usage import sections as usage
from bot.web import addresses, html
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.answers import Answer, RowAnswer, Time, fill_struct, matching, one_of, time
from bot.web.blocks import PullSubject, order_blocks
from bot.web.html import page, render
from bot.web.parameters import REPO, Parameter, open_query
from bot.web.view import Endpoint, Json, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.verdict.failure import Failure, FailureList
    from bot.pages.pulls.failures import EarlierFailure, UpstreamCi
    from bot.pages.pulls.pull_request import BackendSection, HeadLine, PullPage
    from bot.web.blocks import Block
    from bot.web.parameters import Query

SHOWN_OF_PULL = (
    "title", "state", "draft", "merged", "user_login", "author_association", "base_ref", "labels", "html_url",
    "created_at", "updated_at", "closed_at", "merged_at",
)  # fmt: skip
RUNNING_REFRESH = 15  # seconds until a page on which something runs is reloaded
MOST_ATTEMPTS = 1_000  # jobs of a head, all attempts counted, that are looked at
NUMBER = declare.identifier("number", "number of the pull request")
SHA = Parameter(
    "sha",
    addresses.sha,
    None,
    (
        op.in_query(
            "sha", Annotated[str, matching(addresses.SHA)], "one of its heads, or the beginning of its SHA"
        ),
    ),
)
BACKEND = Parameter("backend", lambda request: request.query.get("backend", ""), "", only="page")
LIMIT = declare.limit(1_000, most=5_000)
PARAMETERS = (REPO, NUMBER, SHA, BACKEND, LIMIT)


class FailurePlace(Struct, frozen=True):
    """Where it failed or passed."""

    label: Annotated[
        str, Meta(description="the device or name of a backend, or a kind of machine of upstream")
    ]
    upstream: bool
    passed: bool


class Compared(Struct, frozen=True):
    """How it compares on one backend, or on upstream."""

    repo: Annotated[str, Meta(description="in lower case")]
    word: Annotated[str, Meta(description="what it is counted as there; empty where there is no baseline")]


class ListedFailure(Struct, frozen=True):
    """A failure, once, wherever it is."""

    name: Annotated[str, Meta(description="of the test, else of the job or backend")]
    is_test: bool
    count: Annotated[
        int, Meta(description="how many it stands for: tests of a job that were counted without names")
    ]
    blocking: bool
    word: Annotated[str, Meta(description="new, known, flaky ...; empty where there is no baseline")]
    why: str
    whose: Annotated[str, Meta(description="the label of the backend, `upstream` or `shared`")]
    infrastructure: Annotated[bool, Meta(description="whether the machine failed, not what ran on it")]
    places: list[FailurePlace]
    compared: list[Compared]
    jobs: list[str]
    message: Annotated[str, Meta(description="of the test, else the line of the log")]


class PullFailures(Struct, frozen=True):
    """The failures on a commit, those first that are likely the change's."""

    total: int
    summary: str
    failures: list[ListedFailure]


class PullRequest(
    RowAnswer, row=PullRow, only=("repo", "number", "head_sha", "page_url", *SHOWN_OF_PULL), frozen=True
):
    """The pull request itself, and which of its heads is shown."""

    number: int
    page_url: str


class Gate(Struct, frozen=True):
    """The gate of the shown head, as its check run says."""

    name: str
    state: GateState
    title: Annotated[str, Meta(description="of its check run")]
    sentence: Annotated[
        str, Meta(description="what the backends say of merging; upstream's own checks are not judged")
    ]
    blocking: Annotated[int, Meta(description="backends that block")]
    passed: int
    ignored: Annotated[int, Meta(description="that block and count as passed by `/oot ignore`")]
    waiting_since: Time | None
    pull_number: Annotated[
        int, Meta(description="the pull request that decides: several can have one commit")
    ]
    check_run_id: Annotated[int | None, Meta(description="GitHub's; null before it was written")]


class Head(Struct, frozen=True):
    """A head of a pull request, with its gate, and its backends by state where they were judged."""

    sha: str
    current: bool
    gate: Annotated[GateState | None, Meta(description="null where no backend blocks")]
    backends: dict[Annotated[str, one_of(map(str, State))], int] | None


class FailingJob(
    RowAnswer, row=JobRow, only=("workflow_name", "job_name", "run_id", "run_attempt"), frozen=True
):
    """How a failing job compares with the same job elsewhere, and the run that shows it."""

    history: History | None
    evidence_url: str | None
    evidence_elsewhere: bool


class OnHead(Struct, frozen=True):
    """Where one backend stands on the shown head."""

    repo: str
    level: Level
    role: Annotated[Role, Meta(description="requested: by its label; watching: nobody waits for it")]
    device: str | None
    state: State
    reason: str
    failed: Annotated[
        str,
        Meta(description="its failures, counted as in `failures`, else its state; empty where it is not red"),
    ]
    finished: bool
    attempt: int
    dispatched_at: Time | None
    finished_at: Time | None
    run_url: str | None
    page_url: str
    oncalls: list[str]
    ignored_by: str | None
    ignored_reason: str | None
    failing: list[FailingJob]
    source: Source


class PullAnswer(Answer, frozen=True, kw_only=True):
    """The backends on its newest head, or on `sha`; the newest jobs of all heads, or of it, and whether there are
    `more`. Where very much was dispatched, other heads have null for their `backends`.
    """  # noqa: D205 - one paragraph of the document

    pull: PullRequest
    gate: Annotated[Gate | None, Meta(description="null where the commit has none")]
    heads: list[Head]
    backends: list[OnHead]
    failures: PullFailures
    jobs: list[Job]
    more: bool


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


def answer_failures(failures: FailureList) -> PullFailures:
    """Return the list as JSON."""
    return PullFailures(
        total=failures.total,
        summary=failures.summary if failures.total else "",
        failures=[_failure(failure) for failure in failures.all],
    )


def answer_pull(
    page: PullPage, failures: FailureList, jobs: Sequence[JobRow], *, more: bool, prefix: str
) -> PullAnswer:
    """Return a pull request as JSON; `prefix` begins the names of check runs."""
    return PullAnswer(
        pull=_pull(page),
        gate=_gate(page, prefix=prefix),
        heads=[_head(line, current=line is page.heads[0]) for line in page.heads],
        backends=[_section(section, failures) for section in page.sections],
        failures=answer_failures(failures),
        jobs=[job_answer(row) for row in jobs],
        more=more,
    )


@page
async def show_pull(request: web.Request) -> web.Response:
    """Show a pull request; for an unknown one, say what to check."""
    try:
        async with open_query(request, PARAMETERS, form="page") as query:
            shown = await _read_page(query)
    except Rejected as refusal:
        if refusal.code != pull_request.UNKNOWN_PULL.code:
            raise
        if path := await html.find_instead(request, refusal.code):
            return web.Response(status=302, headers={"Location": path})
        named = f"pull request #{request.match_info['number'][:20]}"
        number = addresses.number(request.match_info["number"])
        return await answer_unknown(request, addresses.repo(request), named, f"pull/{number}")
    settings = query.settings
    unfinished = shown.page.unfinished or (shown.page.current and shown.own.running)
    sha = f"?sha={shown.page.sha}" if query[SHA] else ""
    return render(
        request,
        "pull.html",
        gate_name=check_text.gate_name(settings.check_prefix),
        gate_url=_gate_url(settings, shown.page),
        fresh=addresses.read_refresh(request, default=RUNNING_REFRESH if unfinished else 0),
        shown=shown.page,
        wanted=query[BACKEND],
        own=shown.own,
        failures=shown.failures,
        earlier=shown.earlier,
        blocks=shown.blocks,
        github=web_url(settings.github_api_url),
        json_url=f"/api/oot/pulls/{shown.page.repo}/{query[NUMBER]}{sha}",
    )


async def read_pull_jobs(query: Query) -> PullJobs:
    """Read a pull request and the newest jobs of all its heads, or only of ?sha=; raises Rejected 404."""
    number, sha, limit = query[NUMBER], query[SHA], query[LIMIT]
    page = await pull_request.read_pull_page(
        query.tx, query.settings, query.hidden, repo=query[REPO], number=number, sha=sha
    )
    only = None if sha is None else page.sha
    jobs = await job_rows.jobs_of_pull(query.tx, page.names, number, sha=only, limit=limit + 1)
    shown = await _hide_in_page(query, page)
    _, failures = await _read_failures(query, shown)
    return PullJobs(
        page=pull_request.with_failures(shown, failures),
        failures=failures,
        jobs=await hide_in_jobs(query, jobs[-limit:]),
        more=len(jobs) > limit,
        prefix=query.settings.check_prefix,
    )


def answer_pull_jobs(jobs: PullJobs) -> PullAnswer:
    """Return a pull request: its heads, the backends on one, jobs."""
    return answer_pull(jobs.page, jobs.failures, jobs.jobs, more=jobs.more, prefix=jobs.prefix)


PAGE = Endpoint(web.get("/{owner}/{repo}/pull/{number}", show_pull))
VIEW = View(
    read=read_pull_jobs,
    parameters=PARAMETERS,
    json=Json(
        path="/api/oot/pulls/{owner}/{repo}/{number}",
        answer=answer_pull_jobs,
        content=PullAnswer,
        name="pullRequest",
        summary="Results of a pull request",
        topic=RESULTS,
        refusals=(NOTHING_TO_SHOW, pull_request.UNKNOWN_PULL, pull_request.UNKNOWN_HEAD),
    ),
)


def _failure(failure: Failure) -> ListedFailure:
    return ListedFailure(
        name=failure.name,
        is_test=failure.is_test,
        count=failure.count,
        blocking=failure.blocking,
        word=failure.standing.word,
        why=failure.standing.why,
        whose=failure.whose,
        infrastructure=failure.infra,
        places=[
            FailurePlace(label=place.label, upstream=place.upstream, passed=place.passed)
            for place in failure.places
        ],
        compared=[Compared(repo=repo, word=failure.kind_on(repo)) for repo in failure.on],
        jobs=[job.name for job in failure.jobs],
        message=failure.message or (failure.line.text if failure.line else ""),
    )


def _pull(page: PullPage) -> PullRequest:
    """Return the pull request itself, and which of its heads is shown."""
    known: dict[str, object] = dict.fromkeys(PullRequest.__struct_fields__)
    if page.record is not None:
        known |= page.record
    named = {"repo": page.repo, "number": page.number, "head_sha": page.sha, "page_url": page.page_url}
    return fill_struct(PullRequest, known, **named)


def _gate(page: PullPage, *, prefix: str) -> Gate | None:
    """Return the gate of the shown head."""
    if page.gate is None:
        return None
    gate = page.gate.gate
    return Gate(
        name=check_text.gate_name(prefix),
        state=gate.state,
        title=gate.title,
        sentence=gate.sentence(open_=page.decisive),
        blocking=len(gate.blocking),
        passed=gate.passed,
        ignored=len(gate.blocking) - len(gate.deciding),
        waiting_since=time(gate.waiting_since),
        pull_number=page.gate.number,
        check_run_id=page.gate.check_run_id,
    )


def _head(line: HeadLine, *, current: bool) -> Head:
    """Return a head with its backends by state."""
    states = [backend.state for backend in line.backends]
    counts = {str(state): states.count(state) for state in State if state in states}
    return Head(sha=line.sha, current=current, gate=line.gate, backends=counts if line.judged else None)


def _section(section: BackendSection, failures: FailureList) -> OnHead:
    """Return how one backend stands on the shown head."""
    failing = [
        fill_struct(FailingJob, job, workflow_name=job.workflow, job_name=job.name)
        for job in section.backend.failing
    ]
    finished, source = section.backend.state.finished, "relay" if section.relayed else "callback"
    failed = describe_gate_failure(section.backend, failures) if section.backend.state.red else ""
    return fill_struct(
        OnHead,
        section.backend,
        role=section.role,
        failed=failed,
        finished=finished,
        failing=failing,
        source=source,
    )


async def _read_page(query: Query) -> _ShownPull:
    tx, settings = query.tx, query.settings
    page = await pull_request.read_pull_page(
        tx,
        settings,
        query.hidden,
        repo=query[REPO],
        number=query[NUMBER],
        sha=query[SHA],
        full=pull_request.MOST_FULL,
        wanted=query[BACKEND],
    )
    page = await _hide_in_page(query, page)
    base_ref = page.record["base_ref"] if page.record else None
    subject = PullSubject(
        repo=page.repo,
        number=query[NUMBER],
        head_sha=page.sha,
        base_ref=base_ref,
        github=web_url(settings.github_api_url),
        settings=settings,
    )
    own, failures = await _read_failures(query, page)
    return _ShownPull(
        page=pull_request.with_failures(page, failures),
        own=own,
        failures=failures,
        earlier=await _read_earlier(query, page, own),
        blocks=await _read_blocks(tx, subject),
    )


async def _read_blocks(tx: Transaction, subject: PullSubject) -> list[Block]:
    return order_blocks(
        await describe_asked(tx, subject),
        await artifact_pages.pull_artifacts(tx, subject),
        await run.draw_pull(tx, subject),
        await tests.pull_blocks(tx, subject),
        await usage.show_pull(tx, subject),
        await culprits.describe_pull(tx, subject),
        await benchmarks.show_pull(tx, subject),
    )


async def _read_failures(query: Query, page: PullPage) -> tuple[UpstreamCi, FailureList]:
    """Read upstream's own CI on the shown head, and everything that failed there."""
    own = await read_upstream_ci(query, page.repo, page.sha or "")
    backends = [section.backend for section in page.sections]
    failures = await read_failure_list(
        query,
        page.repo,
        page.sha or "",
        reported=list_reported(backends),
        passed=list_passed(backends),
        judged=list_judged(backends),
        own=own,
        of_pull=True,
        base_ref=page.record["base_ref"] if page.record else None,
    )
    return own, failures


async def _read_earlier(query: Query, page: PullPage, own: UpstreamCi) -> list[EarlierFailure]:
    """Read which earlier attempts failed on the shown head."""
    jobs = await job_rows.jobs_of_pull(
        query.tx, page.names, query[NUMBER], sha=page.sha or "", limit=MOST_ATTEMPTS
    )
    current = {
        section.backend.repo.lower(): CurrentJobs(label=section.backend.label, jobs=section.backend.jobs)
        for section in page.sections
        if not section.relayed
    }
    return list_earlier(await hide_in_jobs(query, jobs), current, own.jobs, page.repo)


def _gate_url(settings: Settings, page: PullPage) -> str | None:
    """Return the address of the gate's check run on GitHub; None before it is written."""
    if page.gate is None or page.gate.check_run_id is None:
        return None
    return f"{web_url(settings.github_api_url)}/{page.repo}/runs/{page.gate.check_run_id}"


async def _hide_in_page(query: Query, page: PullPage) -> PullPage:
    """Return the page without the names that the request may not see."""
    names = await read_names(query, (section.backend.repo for section in page.sections))
    sections = tuple(
        replace(section, backend=hide_in_backend(section.backend, names)) for section in page.sections
    )
    return replace(page, sections=sections)
