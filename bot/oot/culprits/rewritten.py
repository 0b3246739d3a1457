"""The task `bisect_branch`: a branch was rewritten while it is searched; are the commits still on it? Key: the search.

A forced push says which head it replaced, not which commits it took away: GitHub is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.ci.trunk.store import rows as trunk_rows
from bot.core import text
from bot.core.errors import GitHubRefused
from bot.oot.culprits import rows

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.culprits.tables import BisectRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.culprits.rewritten")

KIND = "bisect_branch"
HOLDS = frozenset({"ahead", "identical"})  # what GitHub calls a branch that has a commit, compared with that


async def check_branch(context: Context, task: Task) -> None:
    """End a search whose bad end is no longer on its branch."""
    async with context.store.read() as tx:
        search = await rows.get_search(tx, task.key)
    if search is None or search["ended_at"] is not None or await _is_on_branch(context, search):
        return
    async with context.store.transaction() as tx:
        search = await rows.get_search(tx, task.key, held=True)
        if search is not None and search["ended_at"] is None:
            why = describe_rewritten(search, [search["bad_sha"]])
            await rows.end_search(tx, search["id"], state="gave_up", why=why)
    log.info("search over: its branch was rewritten", search=task.key)


async def find_gone(tx: Transaction, search: BisectRow) -> list[str]:
    """Return which ends of a search are known to be no longer on its branch."""
    found = []
    for sha in (search["good_sha"], search["bad_sha"]):
        row = await trunk_rows.commit(tx, search["repository_id"], search["branch"], sha)
        if row is None or row["gone"]:
            found.append(sha)
    return found


def describe_rewritten(search: BisectRow, gone: list[str]) -> str:
    """Return in words why a branch is not what it was when its search began, and what can be done."""
    good, bad = text.short(search["good_sha"]), text.short(search["bad_sha"])
    what = f"{good} and {bad} are no longer one after the other on it"
    if gone:
        names = " and ".join(text.short(sha) for sha in gone)
        what = f"{names} {'is' if len(gone) == 1 else 'are'} no longer on it"
    return f"{search['branch']} was rewritten: {what}; once the job fails on the new commits, begin again"


async def _is_on_branch(context: Context, search: BisectRow) -> bool:
    """Whether GitHub has the bad end on the branch; where it does not say, it is left to the list of the branch."""
    client = context.github.client(search["upstream_repo"], contents="read")
    compared = {"basehead": f"{search['bad_sha']}...{search['branch']}"}
    try:
        found = await client.getitem(client.path("compare/{basehead}"), compared)
    except GitHubRefused as error:
        log.info("the branch cannot be compared", search=search["id"], reason=str(error))
        return not error.gone
    return found.get("status") in HOLDS
