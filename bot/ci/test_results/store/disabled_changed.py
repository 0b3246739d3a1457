"""test_disabled: failures whose verdict the issues of a repository have changed. Key: the repository's id.

The lists of disabled tests may change long after a test has failed; its commits are then judged again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.disabled import rows as disabled_rows
from bot.ci.test_results.disabled_here import LISTED
from bot.ci.test_results.store import requests
from bot.ci.test_results.store.known_tests import in_batches
from bot.ci.test_results.store.rows import DAY
from bot.ci.test_results.tables import test, test_failure
from bot.ci.test_results.verdict import Verdict
from bot.core.errors import GiveUp

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.queue.tasks import Task

TASK = "test_disabled"
RECENT = 7 * DAY
HEADS_MOST = 300  # that are judged again at once, the newest
FAILURE = test_failure.c


def note(tx: Transaction, changed: Changed) -> None:
    """Before a commit: look at failures once the issues about tests are understood differently."""
    for identifier in sorted({row["repository_id"] for row in changed.get("ci_disabling", ())}):
        tx.enqueue(TASK, str(identifier))


async def judge_disabled_again(context: Context, task: Task) -> None:
    """Judge commits again on which tests failed that are disabled now, or were."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    async with context.store.transaction() as tx:
        known = await disabled_rows.repositories(tx, context.settings)
        repo = known.get(int(task.key))
        if repo is None:
            return
        # what upstream disables, backends may skip
        concerned = sorted(known) if context.settings.is_upstream(repo) else [int(task.key)]
        requests.request_verdicts(tx, await _heads(tx, concerned, await _disabled_names(tx, int(task.key))))


async def _disabled_names(tx: Transaction, repository_id: int) -> set[str]:
    issues = await disabled_rows.disabling(tx, repository_id)
    entries = [name for one in issues if one["listed"] for name, _ in one["entries"]]
    return {found["name"] for entry in entries if (found := LISTED.fullmatch(entry))}


async def _heads(tx: Transaction, repository_ids: list[int], names: set[str]) -> list[str]:
    """Return the commits with a recent failure of a test of these names, or of one that was judged as disabled."""
    newest = sa.func.max(FAILURE.at)
    recent = (
        sa.select(FAILURE.head_sha, newest)
        .where(FAILURE.repository_id.in_(repository_ids), FAILURE.at >= tx.now - RECENT)
        .group_by(FAILURE.head_sha)
        .order_by(newest.desc())
        .limit(HEADS_MOST)
    )
    found = {row[0]: row[1] for row in await tx.run(recent.where(FAILURE.verdict == Verdict.DISABLED.value))}
    named = recent.join_from(test_failure, test, test.c.id == FAILURE.test_id)
    for some in in_batches(sorted(names)):
        found |= {row[0]: row[1] for row in await tx.run(named.where(test.c.name.in_(some)))}
    return sorted(found, key=lambda sha: -found[sha])[:HEADS_MOST]
