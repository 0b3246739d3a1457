"""GET /{owner}/{repo}/commit/{sha} and its JSON: one commit, pushed or tested at night, with its results."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aiohttp import web

from bot.core.escaping import web_url
from bot.ingest import record_store
from bot.jobs.failures import about_commit
from bot.oot.allowlist import versions as allowlists
from bot.oot.verdict.failure import list_jobs, list_unfailed
from bot.oot.verdict.verdict import SKIPPED_BY, latest_attempts
from bot.oot.verdict.view import job_of
from bot.pages.backends import job_rows, template_filters
from bot.pages.backends.interface import EVENTS, NOTHING_TO_SHOW, NOWHERE, RESULTS, hide_in_jobs, job_answer
from bot.pages.backends.interface import Job as JobAnswer
from bot.pages.culprits import sections as culprits
from bot.pages.jobs import artifact_pages, run
from bot.pages.pulls.failures import list_earlier, read_failure_list, read_upstream_ci
from bot.pages.pulls.pull_request import MOST_FULL
from bot.pages.tests import views as tests
from bot.pages.usage import sections as usage
from bot.web import addresses, html
from bot.web import parameters as declare
from bot.web.access import CONTEXT
from bot.web.answers import Answer
from bot.web.blocks import CommitAbout, CommitSubject, order_blocks
from bot.web.html import page, render
from bot.web.openapi import DeclaredRefusal
from bot.web.parameters import REPO, Parameter, open_query
from bot.web.view import Endpoint, Json, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction
    from bot.oot.results.tables import DispatchRow, JobRow
    from bot.oot.verdict.failure import FailureList
    from bot.oot.verdict.view import Job
    from bot.pages.backends.job_rows import PullHead
    from bot.pages.pulls.failures import EarlierFailure, UpstreamCi
    from bot.web.blocks import Block
    from bot.web.parameters import Query

MOST_ROWS = 2_000  # rows of one commit
RUNNING_REFRESH = 30  # seconds until a page on which something runs is reloaded
UNKNOWN_COMMIT = DeclaredRefusal(
    404, "unknown_commit", "no backend has reported on it, or its repository is private"
)
SHA = declare.commit("the upstream commit, or the beginning of its SHA")
BACKEND = Parameter("backend", lambda request: request.query.get("backend", ""), "", only="page")
LIMIT = declare.limit(200)
PARAMETERS = (REPO, SHA, BACKEND, EVENTS, LIMIT)
WORD_OF_DISPATCH = {  # without a report
    "pending": "queued",
    "sent": "queued",
    "held": "held back",
    "waiting": "waiting for a machine",
    "failed": "could not be dispatched",
}


class CommitAnswer(Answer, frozen=True, kw_only=True):
    """Its jobs, the newest first"""

    repo: str
    jobs: list[JobAnswer]


@dataclass(frozen=True, kw_only=True)
class BackendOnCommit:
    """One backend on a commit."""

    repo: str
    label: str  # its device, where it has one of its own
    level: int
    events: tuple[str, ...]
    jobs: tuple[Job, ...]
    tone: str  # colour and sign
    word: str  # its state in a word or two
    counts: str  # of its jobs
    full: bool = True  # with its jobs; of many backends only the most urgent ones


@dataclass(frozen=True, kw_only=True)
class _CommitOnPage:
    """What is known of a commit."""

    sha: str
    pull: PullHead | None  # a pull request it is a head of
    blocks: list[Block]  # of other features
    backends: list[BackendOnCommit]
    own: UpstreamCi
    failures: FailureList
    earlier: list[EarlierFailure]  # of attempts that do not count any more
    about: CommitAbout
    merged: bool  # whether the pull request that it merged has a page here


@page
async def show_commit(request: web.Request) -> web.Response:
    """Show a commit; one that is only the head of a pull request redirects there."""
    async with open_query(request, (REPO, SHA, BACKEND), form="page") as query:
        commit = await _find_commit(query)
    repo, sha, wanted = query[REPO], query[SHA], query[BACKEND]
    if commit is None:
        return await answer_unknown(request, repo, f"commit {sha[:12]}", f"commit/{sha}")
    if commit.pull and not commit.backends:
        where = f"/{commit.pull['repo']}/pull/{commit.pull['number']}?sha={commit.sha}"
        return web.Response(status=302, headers={"Location": where})
    unfinished = any(backend.tone == "wait" for backend in commit.backends) or commit.own.running
    return render(
        request,
        "commit.html",
        fresh=addresses.read_refresh(request, default=RUNNING_REFRESH if unfinished else 0),
        repo=repo,
        sha=commit.sha,
        github=web_url(query.settings.github_api_url),
        pull=commit.pull,
        backends=_in_part(commit.backends, wanted.casefold()),
        wanted=wanted,
        own=commit.own,
        failures=commit.failures,
        unfinished=unfinished,
        tally=_tally(commit.backends),
        earlier=commit.earlier,
        about=commit.about,
        merged=commit.merged,
        blocks=commit.blocks,
        json_url=f"/api/oot/commits/{repo}/{commit.sha}" if commit.backends else "",
    )


async def read_commit(query: Query) -> CommitAnswer:
    """Read the results of one upstream commit, newest first; raises Rejected 404."""
    rows = await job_rows.jobs_on_commit(
        query.tx, _searched_repository(query), query[SHA], events=query[EVENTS], limit=query[LIMIT]
    )
    if not rows:
        raise UNKNOWN_COMMIT.because(f"no backend has reported on {query[SHA]} of {query[REPO][:200]}")
    jobs = await hide_in_jobs(query, rows)
    return CommitAnswer(repo=query[REPO], jobs=[job_answer(row) for row in jobs])


async def answer_unknown(request: web.Request, repo: str, what: str, path: str) -> web.Response:
    """Give the same answer for private and unknown things; `path` is the address on GitHub."""
    github = web_url(request.app[CONTEXT].settings.github_api_url)
    url = f"{github}/{repo}/{path}"
    near = await html.find_alternatives(request, "unknown")
    return render(request, "unknown.html", status=404, repo=repo, what=what, url=url, blocks=near)


PAGE = Endpoint(web.get("/{owner}/{repo}/commit/{sha}", show_commit))
VIEW = View(
    read=read_commit,
    parameters=PARAMETERS,
    json=Json(
        path="/api/oot/commits/{owner}/{repo}/{sha}",
        answer=lambda answer: answer,
        content=CommitAnswer,
        name="commit",
        summary="Results of a commit",
        topic=RESULTS,
        description="Pull requests, pushes, nightly and periodic runs alike.",
        refusals=(NOTHING_TO_SHOW, UNKNOWN_COMMIT),
    ),
)


def _tally(backends: Sequence[BackendOnCommit]) -> str:
    counts = Counter(backend.word for backend in backends)  # those that failed come first
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def _searched_repository(query: Query) -> str:
    """Return the repository to search; for a hidden one an impossible name, which takes as long to look for."""
    return NOWHERE if query.hidden.has(query[REPO]) else query[REPO]


async def _find_commit(query: Query) -> _CommitOnPage | None:
    tx, settings, sha, where = query.tx, query.settings, query[SHA], _searched_repository(query)
    pull = await job_rows.pull_of_head(tx, where, sha)
    backends = await _backends(query, where, sha)
    whole = pull["head_sha"] if pull else await job_rows.full_sha(tx, where, sha)
    if whole is None and await _is_on_branch(query, where, sha):
        whole = sha
    if whole is None:
        return None
    own = await read_upstream_ci(query, where, whole)
    subject = CommitSubject(repo=where, sha=whole, github=web_url(settings.github_api_url), settings=settings)
    about = await _about(query, subject)
    reported = [job for backend in backends for job in list_jobs(backend.repo, backend.label, backend.jobs)]
    passed = {key for backend in backends for key in list_unfailed(backend.repo, backend.jobs)}
    return _CommitOnPage(
        sha=whole,
        pull=pull,
        blocks=await _read_blocks(tx, subject),
        backends=backends,
        own=own,
        failures=await read_failure_list(
            query, where, whole, reported=reported, passed=passed, own=own, of_pull=False
        ),
        earlier=list_earlier((), {}, own.jobs, where),
        about=about,
        merged=bool(about.pull and await record_store.read_pull(tx, where, about.pull)),
    )


async def _read_blocks(tx: Transaction, subject: CommitSubject) -> list[Block]:
    return order_blocks(
        await artifact_pages.commit_artifacts(tx, subject),
        await run.draw_commit(tx, subject),
        await tests.commit_blocks(tx, subject),
        await usage.show_commit(tx, subject),
        await culprits.describe_commit(tx, subject),
    )


async def _is_on_branch(query: Query, repo: str, sha: str) -> bool:
    """Whether a branch has this commit although nothing ran on it: it was pushed together with others."""
    github = web_url(query.settings.github_api_url)
    subject = CommitSubject(repo=repo, sha=sha, github=github, settings=query.settings)
    return await about_commit(query.tx, subject) is not None


async def _about(query: Query, subject: CommitSubject) -> CommitAbout:
    """Describe the commit itself; a commit on no branch as its push described it."""
    about = await about_commit(query.tx, subject)
    if about is not None:
        return about
    titles = await job_rows.titles_of_commits(query.tx, subject.repo, [subject.sha])
    title, author = titles.get(subject.sha, ("", ""))
    return CommitAbout(title=title, author=author, branch="", at=0, parent=None, pull=None)


async def _backends(query: Query, repo: str, sha: str) -> list[BackendOnCommit]:
    tx = query.tx
    jobs: dict[str, list[JobRow]] = defaultdict(list)
    for row in await hide_in_jobs(query, await job_rows.jobs_of_push(tx, repo, sha, limit=MOST_ROWS)):
        if "refused" not in row["flags"]:
            jobs[row["downstream_repo"].casefold()].append(row)
    dispatches = await job_rows.dispatches_of_push(tx, repo, sha, limit=MOST_ROWS)
    dispatched = {row["backend_key"]: row for row in dispatches}
    listed = await allowlists.read_in_force(tx)
    labels = {entry.key: entry.label for entry in listed.entries} if listed else {}
    backends = [
        _backend(jobs.get(key, []), dispatched.get(key), labels.get(key)) for key in {**dispatched, **jobs}
    ]
    order = {"bad": 0, "wait": 1, "good": 2, "idle": 3}
    return sorted(
        backends, key=lambda backend: (order[backend.tone], -backend.level, backend.repo.casefold())
    )


def _in_part(backends: list[BackendOnCommit], wanted: str) -> list[BackendOnCommit]:
    """Return the backends; only the `wanted` one and the most urgent ones keep their jobs."""
    first = sorted(backends, key=lambda backend: backend.repo.casefold() != wanted)[:MOST_FULL]
    chosen = {backend.repo for backend in first}
    return [replace(backend, full=backend.repo in chosen) for backend in backends]


def _backend(reported: list[JobRow], dispatch: DispatchRow | None, label: str | None) -> BackendOnCommit:
    repo, level, events = "", 0, {row["event_type"] for row in reported}
    if dispatch:
        repo, level = dispatch["backend"], dispatch["level"]
        events.add(dispatch["event_type"])
    if reported:
        repo, level = reported[-1]["downstream_repo"], reported[-1]["downstream_repo_level"] or level
    jobs = tuple(job_of(row) for row in latest_attempts(reported))
    state = dispatch["state"] if dispatch and not reported else ""
    tone = _tone(jobs, state)
    word = {"bad": "failed", "wait": "running", "good": "passed"}.get(tone, "no verdict")
    return BackendOnCommit(
        repo=repo,
        label=label or repo,
        level=level,
        events=tuple(sorted(events)),
        jobs=jobs,
        tone=tone,
        word=word if jobs else _word_of_dispatch(state),
        counts=template_filters.job_counts(jobs) if jobs else "no report",
    )


def _word_of_dispatch(state: str) -> str:
    """Return the word for a dispatch without a report."""
    return (
        "not needed" if state.startswith(SKIPPED_BY) else WORD_OF_DISPATCH.get(state, state.replace("_", " "))
    )


def _tone(jobs: Sequence[Job], state: str) -> str:
    """Return the tone of some jobs, or of a dispatch without a report."""
    if any(job.red for job in jobs) or state in {"never_started", "not_installed", "failed"}:
        return "bad"
    if not jobs or not all(job.finished for job in jobs):
        idle = state in {"superseded", "cancelled", "not_run"} or state.startswith(SKIPPED_BY)
        return "idle" if idle else "wait"
    return "good" if any(job.conclusion == "success" for job in jobs) else "idle"
