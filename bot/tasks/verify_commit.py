"""verify_commit: is there such a commit upstream? Key: the SHA that nightly and periodic reports name.

They are taken at their word and marked unverified; a commit nobody knows marks them refused, out of all statistics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.errors import GitHubRefused, NotInstalled
from bot.store import jobs

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

UNKNOWN = frozenset({404, 409, 422})  # what GitHub answers when there is no such commit


async def run(context: Context, task: Task) -> None:
    """Ask for the commit in every watched repository, and settle what was reported on it."""
    async with context.store.transaction() as tx:
        waiting = _unverified(await jobs.on_commit(tx, task.key))
    if not waiting:
        return
    home = await _home(context, task.key)
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
    """Return the watched repository that has the commit; raises GitHubRefused when none could be asked for it."""
    refusal: NotInstalled | None = None
    for repo in context.settings.upstream_repo:
        client = context.github.client(repo, contents="read")
        try:
            await client.getitem(client.path("commits/{sha}"), {"sha": sha})
        except NotInstalled as error:
            refusal = error
        except GitHubRefused as error:
            if error.status not in UNKNOWN:
                raise
        else:
            return repo
    if refusal is not None:
        raise refusal
    return None
