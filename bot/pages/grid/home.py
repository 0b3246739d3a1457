"""GET /hud and what leads to a grid: default branches, the last good commit, sections of a home, the search."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlencode

from aiohttp import web
from msgspec import Meta

from bot.core.errors import Rejected
from bot.core.escaping import shorten, web_url
from bot.ingest import record_store
from bot.jobs import branch_commits, branch_reads, branch_standing, branches, job_names, last_good, rows, runs
from bot.jobs.branch_standing import describe_standing
from bot.jobs.cells import WORDS
from bot.jobs.tables import ci_line, ci_runner_day
from bot.pages.grid import branch_days, grid
from bot.pages.grid.grid import BRANCH_MOST, grid_address
from bot.pages.jobs import job
from bot.web import access, addresses, html
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.access import CONTEXT
from bot.web.answers import Answer, Time, time
from bot.web.blocks import Block, BlockLine
from bot.web.html import page
from bot.web.openapi import INVALID_PARAMETER, NOT_FOUND, UNKNOWN_BRANCH, UNKNOWN_REPOSITORY, DeclaredRefusal
from bot.web.parameters import REPO
from bot.web.search import Hit
from bot.web.view import Endpoint, Json, View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import sqlalchemy as sa

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.jobs.branch_reads import Branch
    from bot.jobs.branch_standing import Standing
    from bot.jobs.tables import ColumnRow, CommitRow
    from bot.web.access import Hidden
    from bot.web.blocks import MissingSubject
    from bot.web.parameters import Parameter, Query
    from bot.web.search import SearchWords

BRANCH = declare.text("branch", "name of the branch; without it the default branch", most=BRANCH_MOST)
BRANCHES_JUDGED = 5  # branches, those with the newest commits: reading one takes a while
BRANCHES_NAMED = 30  # further branches
BROKEN_MOST = 10  # jobs of a branch
JOBS_MOST = 100  # with their shards


class LastGood(Answer, frozen=True, kw_only=True):
    """The newest commit on which every selected job passed"""

    sha: str
    at: Time
    columns: Annotated[int, Meta(description="how many jobs were selected")]


def _pattern(jobs: str) -> str:
    try:
        if jobs != last_good.BLOCKING:
            job_names.compile_typed(jobs)
    except ValueError as error:
        raise INVALID_PARAMETER.because(f"jobs: {error}") from None
    return jobs


def _backend_names(text: str) -> tuple[str, ...]:
    backends = tuple(name.strip() for name in text.split(",") if name.strip())
    if len(backends) > last_good.BACKENDS_MOST:
        raise INVALID_PARAMETER.because(f"backends: at most {last_good.BACKENDS_MOST}")
    return backends


SELECTED_JOBS = declare.parsed(
    "jobs",
    op.Text,
    "jobs that have to pass: a pattern (RE2), or `blocking`; "
    "where none is said to block, those that ran on at least half of the newest 50 commits",
    parse=_pattern,
    default=last_good.BLOCKING,
    tell_default=True,
)
BACKENDS: Parameter[tuple[str, ...]] = declare.parsed(
    "backends",
    op.Text,
    "backends that have to pass as well, owner/repo; commas between",
    parse=_backend_names,
    default=(),
)


async def read_last_good(query: Query) -> last_good.LastGood:
    """Find the last good commit of a branch."""
    branch = await branch_reads.find_branch(query.tx, query.hidden, query[REPO], query[BRANCH])
    return await last_good.find_last_good(
        query.tx, query.settings, branch, jobs=query[SELECTED_JOBS], backends=query[BACKENDS]
    )


def answer_last_good(good: last_good.LastGood) -> LastGood:
    """Return the JSON of a good commit."""
    return LastGood(sha=good.commit["sha"], at=time(good.commit["at"]) or "", columns=good.columns)


LAST_GOOD_VIEW = View(
    read=read_last_good,
    parameters=(REPO, BRANCH, SELECTED_JOBS, BACKENDS),
    json=Json(
        path="/api/ci/{owner}/{repo}/last-good",
        answer=answer_last_good,
        content=LastGood,
        name="lastGood",
        summary="The newest commit on which all selected jobs passed",
        topic=op.CI,
        refusals=(
            NOT_FOUND,
            UNKNOWN_REPOSITORY,
            DeclaredRefusal(404, "no_good_commit", "no commit among the newest is good; `detail` says why"),
        ),
    ),
)


async def find_home(tx: Transaction, settings: Settings, hidden: Hidden) -> str | None:
    """Return the grid of the first upstream's default branch, once pushes to it are known."""
    for repo in settings.upstream_repo:
        with contextlib.suppress(Rejected):
            branch = await branch_reads.find_branch(tx, hidden, repo, "")
            if branch.name and (await branch_reads.newest_commits(tx, branch, before=None, limit=1))[0]:
                return grid_address(branch)
    return None


@page
async def redirect_to_first(request: web.Request) -> web.Response:
    """Redirect to the grid of the first upstream that has one."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        path = await find_home(tx, context.settings, hidden)
    repo = context.settings.upstream_repo[0]
    if path is None and hidden.has(repo):
        raise Rejected(404, "not_found", "there is nothing here that may be shown")
    return web.Response(status=302, headers={"Location": path or f"/hud/{repo}"})


@page
async def redirect_to_default(request: web.Request) -> web.Response:
    """Redirect to the default branch of a repository, with the query."""
    repo = addresses.repo(request)
    async with request.app[CONTEXT].store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        branch = await branch_reads.find_branch(tx, hidden, repo, "")
    if not branch.name:
        raise UNKNOWN_BRANCH.because(f"GitHub has not said what the default branch of {repo} is")
    words = addresses.query(request.query)
    return web.Response(
        status=302, headers={"Location": grid_address(branch) + (f"?{words}" if words else "")}
    )


async def has_grid(query: Query, repo: str) -> bool:
    """Whether pushes to the default branch of a repository are known."""
    with contextlib.suppress(Rejected):
        branch = await branch_reads.find_branch(query.tx, query.hidden, repo, "")
        return bool(
            branch.name and (await branch_reads.newest_commits(query.tx, branch, before=None, limit=1))[0]
        )
    return False


async def has_runners(query: Query, repo: str) -> bool:
    """Whether jobs of a repository were counted by their runner."""
    return await _has_rows(query, repo, ci_runner_day.c.repository_id)


async def has_days(query: Query, repo: str) -> bool:
    """Whether commits of a repository's branches were counted."""
    return await _has_rows(query, repo, ci_line.c.repository_id)


ENDPOINTS = (
    Endpoint(web.get("/hud", redirect_to_first)),
    Endpoint(web.get("/hud/{owner}/{repo}", redirect_to_default)),
)


async def describe_repository(query: Query, repo: str) -> list[Block]:
    """Return how the watched branches stand, and what is broken on them."""
    tx = query.tx
    with contextlib.suppress(Rejected):
        default = await branch_reads.find_branch(tx, query.hidden, repo, "")
        names = await _existing_branches(tx, default)
        watched = [name for name in names if branches.is_watched(query.settings, default.repository, name)]
        judged = [
            await branch_standing.read_standing(tx, query.settings, _named_branch(default, name))
            for name in watched[:BRANCHES_JUDGED]
        ]
        standings = (
            [_standings(judged, default, tx.now, web_url(query.settings.github_api_url))] if judged else []
        )
        others = [name for name in names if name not in watched[:BRANCHES_JUDGED]]
        return [*standings, *_broken_now(judged, default), *_further_branches(others, default)]
    return []


async def describe_branches(tx: Transaction, subject: MissingSubject) -> list[Block]:
    """List the branches of a repository when one of its pages, such as a branch's, does not exist."""
    with contextlib.suppress(Rejected):
        default = await branch_reads.find_branch(tx, subject.query.hidden, subject.repo, "")
        names = await _existing_branches(tx, default)
        home = default.repository["full_name"]
        lines = [BlockLine(text=name, url=_grid_path(default, name)) for name in names[:BRANCHES_NAMED]]
        named = [Block(heading=f"Branches of {home}", lines=tuple(lines))] if lines else []
        return [Block(heading="Its repository", lines=(BlockLine(text=home, url=f"/{home}"),)), *named]
    return []


async def lead_to_commit(tx: Transaction, subject: MissingSubject) -> str | None:
    """Return the commit that a pull request became: one older than the App's installation has no page."""
    number = subject.query.request.match_info.get("number", "")
    if subject.code != "unknown_pull_request" or not subject.repo or not addresses.number(number):
        return None
    with contextlib.suppress(Rejected):
        repository = (await branch_reads.find_branch(tx, subject.query.hidden, subject.repo, "")).repository
        sha = await branch_commits.commit_of_pull(tx, repository["repository_id"], addresses.number(number))
        return f"/{repository['full_name']}/commit/{sha}" if sha else None
    return None


async def find_hits(query: Query, words: SearchWords, limit: int) -> list[Hit]:
    """Return commits, branches and jobs."""
    private = access.reads_private(query.request)
    shown = await record_store.read_visible_repositories(query.tx, query.hidden, private=private)
    return [
        *await _commit_hits(query, words, shown, limit),
        *await _branch_hits(query, words, shown, limit),
        *await _job_hits(query, words, shown, limit),
    ]


GRID_VIEWS = (
    *ENDPOINTS,
    grid.GRID_VIEW,
    job.OTHER_JOB_VIEW,
    LAST_GOOD_VIEW,
    branch_days.METRICS_VIEW,
    branch_days.RELIABILITY_VIEW,
    branch_days.QUEUE_VIEW,
)


def add_template_names(app: web.Application) -> None:
    """Add what the templates use."""
    html.add_names(app, values={"WORDS": WORDS})


async def _has_rows(query: Query, repo: str, repository_id: sa.Column[int]) -> bool:
    with contextlib.suppress(Rejected):
        branch = await branch_reads.find_branch(query.tx, query.hidden, repo, "")
        return await runs.has_rows(query.tx, repository_id, {branch.repository["repository_id"]})
    return False


async def _existing_branches(tx: Transaction, default: Branch) -> list[str]:
    """Return the branches that exist: the default one, then those with the newest commits."""
    identifier = default.repository["repository_id"]
    known = await rows.branches(tx, identifier)
    gone = await branches.deleted_branches(tx, identifier, known)
    return sorted((name for name in known if name not in gone), key=lambda name: name != default.name)


def _named_branch(default: Branch, name: str) -> Branch:
    return branch_reads.Branch(repository=default.repository, names=default.names, name=name)


def _standings(judged: Sequence[Standing], default: Branch, now: int, github: str) -> Block:
    lines = [
        BlockLine(
            text=describe_standing(standing, now=now),
            url=_grid_path(default, standing.branch),
            tone=standing.tone,
        )
        for standing in judged
    ]
    repository = f"{github}/{default.repository['full_name']}"
    lines += [
        BlockLine(
            text=f"what is on {default.name} and not on {standing.branch}",
            url=f"{repository}/compare/{quote(standing.branch, safe='')}...{quote(default.name, safe='')}",
        )
        for standing in judged
        if standing.branch != default.name
    ]
    return Block(heading="Branches", lines=tuple(lines))


def _broken_now(judged: Sequence[Standing], default: Branch) -> list[Block]:
    lines = []
    for standing in judged:
        for trouble in (*standing.blocking, *standing.watched)[:BROKEN_MOST]:
            words = "" if trouble.blocks else ", only watched"
            since = f"broken on {standing.branch} since {trouble.first_bad['sha'][:7]}"
            lines.append(
                BlockLine(
                    text=f"{trouble.name}: {since}{words}",
                    url=f"{_grid_path(default, standing.branch)}?cell={trouble.newest['sha'][:12]}.{trouble.key}#cell",
                    tone="bad" if trouble.blocks else "warn",
                )
            )
    return [Block(heading="Red now", lines=tuple(lines))] if lines else []


def _further_branches(names: Sequence[str], default: Branch) -> list[Block]:
    if not names:
        return []
    lines = tuple(BlockLine(text=name, url=_grid_path(default, name)) for name in names[:BRANCHES_NAMED])
    summary = f"{len(names)} more branches" if len(names) > 1 else "1 more branch"
    return [Block(heading="Further branches", lines=(), folded=lines, summary=summary)]


def _grid_path(default: Branch, name: str) -> str:
    return f"/hud/{default.repository['full_name']}/{quote(name)}"


async def _commit_hits(query: Query, words: SearchWords, shown: Mapping[int, str], limit: int) -> list[Hit]:
    if words.sha:
        commits = await branch_commits.commits_by_sha(query.tx, shown.keys(), words.sha, limit=limit)
    elif words.number is None:
        commits = await branch_commits.commits_by_words(query.tx, shown.keys(), words.text, limit=limit)
    else:
        return []
    return [_commit_hit(row, shown[row["repository_id"]], words) for row in commits]


def _commit_hit(row: CommitRow, repo: str, words: SearchWords) -> Hit:
    by = f"by {row['author']}" if row["author"] else ""
    return Hit(
        kind="commit",
        title=f"{row['sha'][:10]} {row['title']}",
        path=f"/{repo}/commit/{row['sha']}",
        repo=repo,
        detail=", ".join(text for text in (by, f"on {row['branch']}") if text),
        exact=words.sha == row["sha"],
    )


async def _branch_hits(query: Query, words: SearchWords, shown: Mapping[int, str], limit: int) -> list[Hit]:
    named = await branch_commits.branches_by_name(query.tx, shown.keys(), words.text, limit=limit)
    return [
        Hit(
            kind="branch",
            title=branch,
            path=f"/hud/{shown[owner]}/{quote(branch)}",
            repo=shown[owner],
            exact=branch.casefold() == words.folded,
        )
        for owner, branch in named
    ]


async def _job_hits(query: Query, words: SearchWords, shown: Mapping[int, str], limit: int) -> list[Hit]:
    if words.number is not None:
        return []
    columns = await branch_commits.jobs_by_name(
        query.tx, shown.keys(), words.text.split()[:8], limit=JOBS_MOST
    )
    unsharded: dict[tuple[object, ...], ColumnRow] = {}
    for row in sorted(columns, key=lambda row: len(row["job"])):
        unsharded.setdefault((row["repository_id"], row["workflow"], row["base_name"], row["config"]), row)
    return [
        await _job_hit(query, row, shown[row["repository_id"]]) for row in list(unsharded.values())[:limit]
    ]


async def _job_hit(query: Query, row: ColumnRow, repo: str) -> Hit:
    """Return the grid of the default branch with the columns of a job; its pages are those of its runs."""
    known = await rows.repository(query.tx, {row["repository_id"]})
    branch = (known and known["default_branch"]) or "main"
    name_filter = urlencode({"name": shorten(row["job"], 200)})
    return Hit(
        kind="job",
        title=f"{row['workflow']} / {row['job']}",
        path=f"/hud/{repo}/{quote(branch)}?{name_filter}",
        repo=repo,
        detail=f"on {branch}",
    )
