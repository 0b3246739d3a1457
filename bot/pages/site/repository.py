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
from bot.web.blocks import Block, BlockLine, RepositorySubject
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


async def read_home(asked: Query) -> RepositoryHome:
    """Read the home of a repository; raises Rejected 404."""
    repo = await _known_name(asked, asked[REPO])
    if repo is None:
        raise UNKNOWN_REPOSITORY.because(f"nothing of {asked[REPO][:200]} is known here")
    is_upstream = asked.settings.is_upstream(repo)
    pulls = await pull_rows.page_of_pulls(
        asked.tx, repo, state="open", author="", before=None, limit=MOST_PULLS
    )
    days = asked.request.app[DAY_SUMS]
    backends = await health.read_backends(asked.tx, asked.hidden, DAYS, days) if is_upstream else []
    subject = RepositorySubject(asked=asked, repo=repo)
    return RepositoryHome(
        repo=repo,
        is_upstream=is_upstream,
        blocks=await home.describe_repository(asked.tx, subject),
        pulls=await pull_list.read_lines(asked, pulls),
        open_pulls=await pull_rows.count_open(asked.tx, repo),
        backends=[one for one in backends if one.level > 1],
        github=web_url(asked.settings.github_api_url),
    )


async def has_home(asked: Query, repo: str) -> bool:
    """Whether a repository has a home: upstream, a listed backend, or one that GitHub has told of."""
    return await _known_name(asked, repo) is not None


async def _known_name(asked: Query, repo: str) -> str | None:
    """Return a repository as it is spelled, None where nothing of it is known, or may be shown."""
    settings = asked.settings
    if asked.hidden.has(repo):
        return None
    if settings.is_upstream(repo):
        return next(one for one in settings.upstream_repo if one.casefold() == repo.casefold())
    private = access.reads_private(asked.request)
    shown = await record_store.read_visible_repositories(asked.tx, asked.hidden, private=private)
    for name in shown.values():
        if name.casefold() == repo.casefold():
            return name
    allowlist = await allowlists.read_in_force(asked.tx)
    entry = allowlist.find(repo) if allowlist else None
    return None if entry is None or all(map(asked.hidden.has, settings.upstream_repo)) else entry.repo


def show_home(found: RepositoryHome) -> dict[str, Any]:
    """Return what the page shows."""
    return {
        "repo": found.repo,
        "is_upstream": found.is_upstream,
        "blocks": found.blocks,
        "pulls": found.pulls,
        "open_pulls": found.open_pulls,
        "backends": found.backends,
        "days": DAYS,
        "github": found.github,
    }


VIEW = View(
    read=read_home,
    parameters=(REPO,),
    page=Page(path=REPOSITORY, template="repository.html", values=show_home),
)


MOST_BACKENDS = 200


async def describe_missing(tx: Transaction, subject: MissingSubject) -> list[Block]:
    """Return the repositories that are watched, and what is nearer to the address."""
    found = await home.describe_branches(tx, subject)
    hidden, settings = subject.asked.hidden, subject.asked.settings
    if subject.path.startswith("/oot"):
        found += await _backends(tx, subject)
    if subject.code in {"unknown", "unknown_pull_request", "unknown_commit"} and subject.repo:
        found += await _pulls(tx, subject)
    upstreams = [one for one in settings.upstream_repo if not hidden.has(one)]
    lines = tuple(BlockLine(text=one, url=f"/{one}") for one in upstreams)
    if lines:
        found.append(Block(heading="Watched repositories", lines=lines))
    return found


async def _backends(tx: Transaction, subject: MissingSubject) -> list[Block]:
    if all(map(subject.asked.hidden.has, subject.asked.settings.upstream_repo)):
        return []
    allowlist = await allowlists.read_in_force(tx)
    entries = sorted(allowlist.entries if allowlist else (), key=lambda one: (-one.level, one.key))
    lines = tuple(
        BlockLine(
            text=f"{one.device}, {one.repo}" if one.device else one.repo,
            url=f"/oot/{one.repo}",
        )
        for one in entries[:MOST_BACKENDS]
    )
    return [Block(heading="Backends", lines=lines)] if lines else []


async def _pulls(tx: Transaction, subject: MissingSubject) -> list[Block]:
    repo = subject.repo
    if subject.asked.hidden.has(repo) or not await pull_rows.has_pulls(tx, repo):
        return []
    line = BlockLine(text=f"Pull requests of {repo}", url=f"/{repo}/pulls")
    return [Block(heading="Near it", lines=(line,))]
