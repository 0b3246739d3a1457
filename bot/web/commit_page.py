"""GET /{owner}/{repo}/commit/{sha}: what do backends say of one commit, pushed or tested by night?"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aiohttp import web

from bot.domain import own, verdict
from bot.domain.urls import web_url
from bot.store import commit_reads, reads
from bot.web import access, parameters, refresh
from bot.web.html import job_counts, page, render
from bot.web.keys import CONTEXT
from bot.web.pulls import FULL, NOWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.domain.own import Own
    from bot.domain.view import Job
    from bot.store import Transaction

Row = dict[str, Any]
MOST = 2_000  # rows of one commit
RUNNING = 30  # seconds until the page of a commit on which something runs loads itself anew
WORD_OF_DISPATCH = {  # while nothing is reported on it
    "pending": "queued",
    "sent": "queued",
    "held": "held back",
    "failed": "could not be dispatched",
}


@dataclass(frozen=True, kw_only=True)
class Told:
    """One backend on a commit."""

    repo: str
    level: int
    events: tuple[str, ...]
    jobs: tuple[Job, ...]
    tone: str  # the colour and sign it is shown with
    word: str  # what it says in a word or two
    counts: str  # how its jobs stand
    full: bool = True  # with its jobs; of many backends only those one has to look at


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What is known of a commit."""

    sha: str
    pull: Row | None  # a pull request it is a head of
    told: list[Told]
    own: list[Own]


@page
async def commit(request: web.Request) -> web.Response:
    """Show a commit; one that is but a head of a pull request leads there."""
    repo, sha = parameters.repo(request), parameters.commit(request.match_info["sha"])
    wanted = request.query.get("backend", "")
    found = await _find(request, repo, sha)
    if found is None:
        return unknown(request, repo, f"commit {sha[:12]}")
    if found.pull and not found.told:
        where = f"/{found.pull['repo']}/pull/{found.pull['number']}?sha={found.sha}"
        return web.Response(status=302, headers={"Location": where})
    context = request.app[CONTEXT]
    unfinished = any(one.tone == "wait" for one in found.told) or own.running(found.own)
    return render(
        request,
        "commit.html",
        fresh=refresh.of(request, unasked=RUNNING if unfinished else 0),
        repo=repo,
        sha=found.sha,
        github=web_url(context.settings.github_api_url),
        pull=found.pull,
        told=_in_part(found.told, wanted.casefold()),
        wanted=wanted,
        own=found.own,
        own_counts=own.counts(found.own),
        json_url=f"/api/oot/commits/{repo}/{found.sha}" if found.told else "",
    )


async def _find(request: web.Request, repo: str, sha: str) -> _Found | None:
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        hidden = await access.of_request(request, tx)
        # what is hidden is looked for where nothing is: it takes as long as what nobody knows
        where = NOWHERE if hidden.has(repo) else repo
        pull = await reads.pull_of_head(tx, where, sha)
        told = await _told(tx, where, sha)
        whole = pull["head_sha"] if pull else await commit_reads.full_sha(tx, where, sha)
        if whole is None:
            return None
        theirs = await upstreams_own(tx, where, whole, ours=context.settings.app_id)
    return _Found(sha=whole, pull=pull, told=told, own=theirs)


async def upstreams_own(tx: Transaction, repo: str, sha: str, *, ours: int) -> list[Own]:
    """Return upstream's own workflow jobs and the checks of others on a commit, from our records."""
    jobs = await commit_reads.own_jobs(tx, repo, sha, limit=MOST)
    checks = await commit_reads.own_checks(tx, repo, sha, limit=MOST)
    return own.own(jobs, checks, ours=ours)


def unknown(request: web.Request, repo: str, what: str) -> web.Response:
    """Answer the same for what is private and for what nobody told us about."""
    return render(request, "unknown.html", status=404, repo=repo, what=what)


async def _told(tx: Transaction, repo: str, sha: str) -> list[Told]:
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in await commit_reads.jobs(tx, repo, sha, limit=MOST):
        if "refused" not in row["flags"]:
            rows[row["downstream_repo"].casefold()].append(row)
    asked = {row["backend_key"]: row for row in await commit_reads.dispatches(tx, repo, sha, limit=MOST)}
    found = [_backend(rows.get(key, []), asked.get(key)) for key in {**asked, **rows}]
    order = {"bad": 0, "wait": 1, "good": 2, "idle": 3}
    return sorted(found, key=lambda one: (order[one.tone], -one.level, one.repo.casefold()))


def _in_part(told: list[Told], wanted: str) -> list[Told]:
    """Return the backends of which only the `wanted` one and the first, most urgent ones are full."""
    first = sorted(told, key=lambda one: one.repo.casefold() != wanted)[:FULL]
    chosen = {one.repo for one in first}
    return [replace(one, full=one.repo in chosen) for one in told]


def _backend(rows: list[Row], dispatch: Row | None) -> Told:
    last = rows[-1] if rows else {}
    events = {row["event_type"] for row in rows} | ({dispatch["event_type"]} if dispatch else set())
    jobs = verdict.latest(rows)
    state = dispatch["state"] if dispatch and not rows else ""
    tone = _tone(jobs, state)
    word = {"bad": "failed", "wait": "running", "good": "passed"}.get(tone, "no verdict")
    return Told(
        repo=last.get("downstream_repo") or (dispatch or {}).get("backend", ""),
        level=last.get("downstream_repo_level") or (dispatch or {}).get("level", 0),
        events=tuple(sorted(events)),
        jobs=jobs,
        tone=tone,
        word=word if jobs else WORD_OF_DISPATCH.get(state, state.replace("_", " ")),
        counts=job_counts(jobs) if jobs else "no report",
    )


def _tone(jobs: Sequence[Job], state: str) -> str:
    """Return the colour of some jobs, or of a dispatch nobody reported on."""
    if any(job.red for job in jobs) or state in {"never_started", "not_installed", "failed"}:
        return "bad"
    if not jobs or not all(job.finished for job in jobs):
        return "idle" if state == "superseded" else "wait"
    return "good" if any(job.conclusion == "success" for job in jobs) else "idle"
