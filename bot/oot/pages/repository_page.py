"""GET /{owner}/{repo}: the home of a repository, with its branches, open pull requests and backends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.core.links import web_url
from bot.ingest import record_reads
from bot.oot.allowlist import rows as allowlists
from bot.oot.pages import health, pull_lines, pull_rows
from bot.oot.statistics.day_sums_cache import DAY_SUMS
from bot.web import access, blocks
from bot.web.refusals import UNKNOWN_REPOSITORY
from bot.web.subjects import RepositorySubject
from bot.web.view import Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from bot.oot.pages.health import Health
    from bot.oot.pages.pull_lines import PullLine
    from bot.web.asked import Asked
    from bot.web.blocks import Block

PULLS = 10  # open pull requests that are shown, the newest
DAYS = 7  # of the backends' pass rates


@dataclass(frozen=True, kw_only=True)
class Home:
    """A repository and what is known of it."""

    repo: str
    is_upstream: bool
    blocks: list[Block]  # of capabilities
    pulls: list[PullLine]
    open_pulls: int
    backends: list[Health]  # that dispatches go to, where it is an upstream
    github: str


async def read_home(asked: Asked) -> Home:
    """Read the home of a repository; raises Rejected 404."""
    repo = await _known_name(asked, asked[REPO])
    if repo is None:
        raise UNKNOWN_REPOSITORY.because(f"nothing of {asked[REPO][:200]} is known here")
    is_upstream = asked.settings.is_upstream(repo)
    pulls = await pull_rows.page_of_pulls(asked.tx, repo, state="open", author="", before=None, limit=PULLS)
    days = asked.request.app[DAY_SUMS]
    backends = await health.read_backends(asked.tx, asked.hidden, DAYS, days) if is_upstream else []
    subject = RepositorySubject(asked=asked, repo=repo)
    return Home(
        repo=repo,
        is_upstream=is_upstream,
        blocks=await blocks.gather(asked.context.features, "repository", asked.tx, subject),
        pulls=await pull_lines.read_lines(asked, pulls),
        open_pulls=await pull_rows.count_open(asked.tx, repo),
        backends=[one for one in backends if one.level > 1],
        github=web_url(asked.settings.github_api_url),
    )


async def has_home(asked: Asked, repo: str) -> bool:
    """Whether a repository has a home: upstream, a listed backend, or one that GitHub has told of."""
    return await _known_name(asked, repo) is not None


async def _known_name(asked: Asked, repo: str) -> str | None:
    """Return a repository as it is spelled, None where nothing of it is known, or may be shown."""
    settings = asked.settings
    if asked.hidden.has(repo):
        return None
    if settings.is_upstream(repo):
        return next(one for one in settings.upstream_repo if one.casefold() == repo.casefold())
    private = access.reads_private(asked.request)
    shown = await record_reads.shown_repositories(asked.tx, asked.hidden, private=private)
    for name in shown.values():
        if name.casefold() == repo.casefold():
            return name
    allowlist = await allowlists.in_force(asked.tx)
    entry = allowlist.find(repo) if allowlist else None
    return None if entry is None or all(map(asked.hidden.has, settings.upstream_repo)) else entry.repo


def show(found: Home) -> dict[str, Any]:
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
    page=Page(path=REPOSITORY, template="repository.html", values=show),
)
