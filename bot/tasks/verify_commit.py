"""verify_commit: is there such a commit upstream? Key: the SHA that nightly and periodic reports name.

They are taken at their word and marked unverified; a commit nobody knows marks them refused, out of all statistics.
GitHub shows the commits of forks in a repository, too: it has to be on the default branch, or the head of a branch, or
have been pushed there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.errors import GitHubRefused, NotInstalled, RetryLater
from bot.store import jobs

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

AGAIN, PATIENCE = 3600.0, 24 * 3_600_000  # seconds until GitHub is asked again, milliseconds it is asked for
ON_DEFAULT_BRANCH = frozenset({"behind", "identical"})
UNKNOWN = frozenset({404, 409, 422})  # what GitHub answers when there is no such commit


async def run(context: Context, task: Task) -> None:
    """Ask for the commit in every watched repository, and settle what was reported on it."""
    async with context.store.transaction() as tx:
        waiting = _unverified(await jobs.on_commit(tx, task.key))
    if not waiting:
        return
    try:
        home = await _home(context, task.key)
    except GitHubRefused as error:  # we may not look: that may be mended, but nobody waits for ever
        if context.clock.now() - min(row["received_at"] for row in waiting.values()) < PATIENCE:
            raise RetryLater(f"commit {task.key} cannot be asked for: {error}", after=AGAIN) from error
        home = None
    async with context.store.transaction() as tx:
        rows = _unverified(await jobs.on_commit(tx, task.key))
        await jobs.change(tx, {key: _settled(row, home, tx.now) for key, row in rows.items()})


def _unverified(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {key: row for key, row in rows.items() if "unverified" in row["flags"]}


def _settled(row: dict[str, Any], home: str | None, now: int) -> dict[str, Any]:
    flags = {name: value for name, value in row["flags"].items() if name != "unverified"}
    if home is None:
        return row | {"flags": flags | {"refused": True}, "updated_at": now}
    return row | {"flags": flags, "upstream_repo": home, "updated_at": now}


async def _home(context: Context, sha: str) -> str | None:
    """Return the watched repository that has the commit; raises GitHubRefused when one could not be asked for it."""
    refusal: GitHubRefused | None = None
    for repo in context.settings.upstream_repo:
        try:
            if await _is_in(context, repo, sha):
                return repo
        except GitHubRefused as error:
            refusal = error
    if refusal is not None:
        raise refusal
    return None


async def _is_in(context: Context, repo: str, sha: str) -> bool:
    """Return whether a commit is a repository's own."""
    client = context.github.client(repo, contents="read")
    about = await client.getitem(client.path("").rstrip("/"))
    ends = {"basehead": f"{about['default_branch']}...{sha}"}
    try:
        compared = await client.getitem(
            client.path("compare/{basehead}{?per_page}"), ends | {"per_page": "1"}
        )
        if compared["status"] in ON_DEFAULT_BRANCH:
            return True
        async with context.store.read() as tx:
            if await jobs.was_pushed(tx, repo, sha):
                return True
        heads = await client.getitem(client.path("commits/{sha}/branches-where-head"), {"sha": sha})
    except GitHubRefused as error:
        if isinstance(error, NotInstalled) or error.status not in UNKNOWN:
            raise
        return False
    return bool(heads)
