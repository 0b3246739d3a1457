"""verify_commit: checks that the commit nightly and periodic reports name exists upstream. Key: its SHA.

Reports are stored as unverified first; if no watched repository has the commit, they are
marked refused and left out of statistics.
With REPORTS=lenient they count, and are on no commit.
GitHub shows commits of forks in a repository, too: so it has to be on the default branch, the head of a branch, or
pushed there. GitHub is asked only once per commit and backend: requests count against upstream's budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.errors import GitHubRefused, RetryLater
from bot.oot.reports.store import unverified

if TYPE_CHECKING:
    from bot.context import Context
    from bot.queue.tasks import Task

AGAIN, PATIENCE = 3600.0, 24 * 3_600_000  # seconds until GitHub is asked again, milliseconds it is asked for
ON_DEFAULT_BRANCH = frozenset({"behind", "identical"})


async def verify_commit(context: Context, task: Task) -> None:
    """Find out which repository has the commit, from our own rows if possible, and settle its reports."""
    async with context.store.read() as tx:
        found = await unverified.read_statuses(tx, task.key)
        pushed = [
            repo for repo in context.settings.upstream_repo if await unverified.was_pushed(tx, repo, task.key)
        ]
    waiting = [some for some in found if some["unverified"]]
    settled = [some for some in found if not some["unverified"]]
    if not waiting:
        return
    homes = [*pushed, *(some["upstream_repo"] for some in settled if not some["unknown"])]
    if homes:
        home: str | None = homes[0]
    # a backend that names a commit too early must not spoil it for others
    elif {some["backend"] for some in waiting} <= {some["backend"] for some in settled}:
        home = None
    else:
        home = await _ask(context, task.key, since=min(some["since"] for some in waiting))
    more, leniently = True, context.settings.reports == "lenient"
    while more:
        async with context.store.transaction() as tx:
            more = await unverified.settle(tx, task.key, home, leniently=leniently)


async def _ask(context: Context, sha: str, *, since: int) -> str | None:
    """Return the watched repository that has the commit, None when none has, or none could be asked for a day.

    Raises RetryLater when one could not be asked, `since` less than a day.
    """
    refusal: GitHubRefused | None = None
    for repo in context.settings.upstream_repo:
        try:
            if await _is_in(context, repo, sha, since=since):
                return repo
        except GitHubRefused as error:
            refusal = error
    # no access: that may be granted later, but reports do not wait forever
    if refusal is not None and context.clock.now() - since < PATIENCE:
        raise RetryLater(f"commit {sha} cannot be asked for: {refusal}", after=AGAIN) from refusal
    return None


async def _is_in(context: Context, repo: str, sha: str, *, since: int) -> bool:
    """Return whether a commit is on a repository's default branch or the head of a branch; raises GitHubRefused."""
    client = context.github.client(repo, since=since, contents="read")
    async with context.store.read() as tx:
        branch = await unverified.read_default_branch(tx, repo)
    if branch is None:
        branch = (await client.repository())["default_branch"]
    try:
        url = client.path("compare/{basehead}{?per_page}")
        compared = await client.getitem(url, {"basehead": f"{branch}...{sha}", "per_page": "1"})
        if compared["status"] in ON_DEFAULT_BRANCH:
            return True
        heads = await client.getitem(client.path("commits/{sha}/branches-where-head"), {"sha": sha})
    except GitHubRefused as error:
        if not error.gone:
            raise
        return False
    return bool(heads)
