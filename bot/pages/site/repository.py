"""GET /{owner}/{repo}: the home of a repository; and what there is instead of a page that is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.core.escaping import web_url
from bot.ingest import record_store
from bot.oot.allowlist import versions as allowlists
from bot.oot.statistics import health
from bot.oot.statistics.daily_sums import DAY_SUMS
from bot.pages.grid import home
from bot.pages.pulls import pull_list, pull_rows
from bot.web import access
from bot.web.blocks import Block, BlockLine
from bot.web.openapi import UNKNOWN_REPOSITORY
from bot.web.parameters import REPO, REPOSITORY
from bot.web.view import Page, View

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.oot.statistics.health import Health
    from bot.pages.pulls.pull_list import PullLine
    from bot.web.blocks import MissingSubject
    from bot.web.parameters import Query

MOST_PULLS = 10  # open pull requests that are shown, the newest
DAYS = 7  # of the backends' pass rates
MOST_BACKENDS = 200


@dataclass(frozen=True, kw_only=True)
class RepositoryHome:
    """A repository and what is known of it."""

    repo: str
    is_upstream: bool
    blocks: list[Block]  # of capabilities
    pulls: list[PullLine]
    open_pulls: int
    backends: list[Health]  # that dispatches go to, where it is an upstream
    github: str


async def read_home(query: Query) -> RepositoryHome:
    """Read the home of a repository; raises Rejected 404."""
    repo = await _known_name(query, query[REPO])
    if repo is None:
        raise UNKNOWN_REPOSITORY.because(f"nothing of {query[REPO][:200]} is known here")
    is_upstream = query.settings.is_upstream(repo)
    pulls = await pull_rows.page_of_pulls(
        query.tx, repo, state="open", author="", before=None, limit=MOST_PULLS
    )
    days = query.request.app[DAY_SUMS]
    backends = await health.read_backends(query.tx, query.hidden, DAYS, days) if is_upstream else []
    return RepositoryHome(
        repo=repo,
        is_upstream=is_upstream,
        blocks=await home.describe_repository(query, repo),
        pulls=await pull_list.read_lines(query, pulls),
        open_pulls=await pull_rows.count_open(query.tx, repo),
        backends=[backend for backend in backends if backend.level > 1],
        github=web_url(query.settings.github_api_url),
    )


async def has_home(query: Query, repo: str) -> bool:
    """Whether a repository has a home: an upstream, a listed backend, or any that GitHub told us of."""
    return await _known_name(query, repo) is not None


def show_home(page: RepositoryHome) -> dict[str, Any]:
    """Return what the page shows."""
    return {
        "repo": page.repo,
        "is_upstream": page.is_upstream,
        "blocks": page.blocks,
        "pulls": page.pulls,
        "open_pulls": page.open_pulls,
        "backends": page.backends,
        "days": DAYS,
        "github": page.github,
    }


VIEW = View(
    read=read_home,
    parameters=(REPO,),
    page=Page(path=REPOSITORY, template="repository.html", values=show_home),
)


async def describe_missing(tx: Transaction, subject: MissingSubject) -> list[Block]:
    """List the watched repositories, and what is nearer to the address."""
    blocks = await home.describe_branches(tx, subject)
    hidden, settings = subject.query.hidden, subject.query.settings
    if subject.path.startswith("/oot"):
        blocks += await _backends(tx, subject)
    if subject.code in {"unknown", "unknown_pull_request", "unknown_commit"} and subject.repo:
        blocks += await _pulls(tx, subject)
    upstreams = [upstream for upstream in settings.upstream_repo if not hidden.has(upstream)]
    lines = tuple(BlockLine(text=upstream, url=f"/{upstream}") for upstream in upstreams)
    if lines:
        blocks.append(Block(heading="Watched repositories", lines=lines))
    return blocks


async def _known_name(query: Query, repo: str) -> str | None:
    """Return the spelling of a repository's name; None if it is unknown or hidden."""
    settings = query.settings
    if query.hidden.has(repo):
        return None
    if settings.is_upstream(repo):
        return next(upstream for upstream in settings.upstream_repo if upstream.casefold() == repo.casefold())
    private = access.reads_private(query.request)
    shown = await record_store.read_visible_repositories(query.tx, query.hidden, private=private)
    for name in shown.values():
        if name.casefold() == repo.casefold():
            return name
    allowlist = await allowlists.read_in_force(query.tx)
    entry = allowlist.find(repo) if allowlist else None
    return None if entry is None or all(map(query.hidden.has, settings.upstream_repo)) else entry.repo


async def _backends(tx: Transaction, subject: MissingSubject) -> list[Block]:
    if all(map(subject.query.hidden.has, subject.query.settings.upstream_repo)):
        return []
    allowlist = await allowlists.read_in_force(tx)
    entries = sorted(allowlist.entries if allowlist else (), key=lambda entry: (-entry.level, entry.key))
    lines = tuple(
        BlockLine(
            text=f"{entry.device}, {entry.repo}" if entry.device else entry.repo,
            url=f"/oot/{entry.repo}",
        )
        for entry in entries[:MOST_BACKENDS]
    )
    return [Block(heading="Backends", lines=lines)] if lines else []


async def _pulls(tx: Transaction, subject: MissingSubject) -> list[Block]:
    repo = subject.repo
    if subject.query.hidden.has(repo) or not await pull_rows.has_pulls(tx, repo):
        return []
    line = BlockLine(text=f"Pull requests of {repo}", url=f"/{repo}/pulls")
    return [Block(heading="Near it", lines=(line,))]
