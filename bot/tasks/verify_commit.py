"""verify_commit: is there such a commit upstream? Key: the SHA that nightly and periodic reports name.

They are taken at their word and marked unverified; a commit nobody knows marks them refused, out of all statistics.
GitHub shows the commits of forks in a repository, too: it has to be on the default branch, or the head of a branch, or
have been pushed there. GitHub is asked once a commit and backend, whatever comes of it: answers are upstream's budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.errors import GitHubRefused, NotInstalled, RetryLater
from bot.store import commits

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

AGAIN, PATIENCE = 3600.0, 24 * 3_600_000  # seconds until GitHub is asked again, milliseconds it is asked for
ON_DEFAULT_BRANCH = frozenset({"behind", "identical"})
UNKNOWN = frozenset({404, 409, 422})  # what GitHub answers when there is no such commit


async def run(context: Context, task: Task) -> None:
    """Find out whose the commit is, from our own rows where they tell, and settle what was reported on it."""
    async with context.store.read() as tx:
        standing = await commits.standing(tx, task.key)
        pushed = [
            repo for repo in context.settings.upstream_repo if await commits.was_pushed(tx, repo, task.key)
        ]
    waiting = [some for some in standing if some["unverified"]]
    told = [some for some in standing if not some["unverified"]]
    if not waiting:
        return
    homes = [*pushed, *(some["upstream_repo"] for some in told if not some["refused"])]
    if homes:
        home: str | None = homes[0]
    # nobody spoils a commit for others by naming it too early
    elif {some["backend"] for some in waiting} <= {some["backend"] for some in told}:
        home = None
    else:
        home = await _ask(context, task.key, since=min(some["since"] for some in waiting))
    more = True
    while more:
        async with context.store.transaction() as tx:
            more = await commits.settle(tx, task.key, home)


async def _ask(context: Context, sha: str, *, since: int) -> str | None:
    """Return the watched repository that has the commit, None when none has, or none could be asked for a day.

    Raises RetryLater when one could not be asked, `since` less than a day.
    """
    refusal: GitHubRefused | None = None
    for repo in context.settings.upstream_repo:
        try:
            if await _is_in(context, repo, sha):
                return repo
        except GitHubRefused as error:
            refusal = error
    # we may not look: that may be mended, but nobody waits for ever
    if refusal is not None and context.clock.now() - since < PATIENCE:
        raise RetryLater(f"commit {sha} cannot be asked for: {refusal}", after=AGAIN) from refusal
    return None


async def _is_in(context: Context, repo: str, sha: str) -> bool:
    """Return whether a commit is on a repository's default branch or the head of a branch; raises GitHubRefused."""
    client = context.github.client(repo, contents="read")
    async with context.store.read() as tx:
        branch = await commits.default_branch(tx, repo)
    if branch is None:
        branch = (await client.repository())["default_branch"]
    try:
        url = client.path("compare/{basehead}{?per_page}")
        compared = await client.getitem(url, {"basehead": f"{branch}...{sha}", "per_page": "1"})
        if compared["status"] in ON_DEFAULT_BRANCH:
            return True
        heads = await client.getitem(client.path("commits/{sha}/branches-where-head"), {"sha": sha})
    except GitHubRefused as error:
        if isinstance(error, NotInstalled) or error.status not in UNKNOWN:
            raise
        return False
    return bool(heads)
