"""What logs do before every commit: keep private failures apart, and tell statistics why reported jobs failed.

From the moment GitHub says that a repository is private, signatures that contain its jobs are not shown; a task then
moves the jobs to counts of their own, and the rest is shown again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.logs import failure_kind
from bot.ci.logs.store import private_failures
from bot.core.errors import GiveUp

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.queue.tasks import Task

QUERIED = 1_000  # repositories named in one statement: an installation may bring very many


async def before_commit(tx: Transaction, changed: Changed) -> None:
    """Follow what changed of repositories and reports."""
    private = sorted({int(row["repository_id"]) for row in changed.get("repository", ()) if row["private"]})
    for start in range(0, len(private), QUERIED):
        public = await private_failures.counted_in_public(tx, private[start : start + QUERIED])
        for identifier in sorted(public):
            tx.enqueue("private_logs", str(identifier))
    await failure_kind.follow_reports(tx, changed)


async def move_private_failures(context: Context, task: Task) -> None:
    """Move the failures of a private repository to counts of their own (key: its id)."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    while True:
        async with context.store.transaction() as tx:
            if not await private_failures.is_private(tx, int(task.key)):
                return
            if not await private_failures.move_batch(tx, int(task.key)):
                return
