"""Before a commit: whatever may matter to a search under way makes it go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.trunk.store.branches import HEADS
from bot.oot.culprits import rewritten, rows
from bot.oot.culprits.start import KIND

if TYPE_CHECKING:
    from bot.db.transaction import Changed, Transaction

TABLES = ("oot_workflow_job", "oot_dispatch", "workflow_job", "workflow_run")
SOON = 2.0  # seconds: reports come in batches


async def before_commit(tx: Transaction, changed: Changed) -> None:
    """Have searches look at what these rows say; there are few."""
    if any(_ended(table, changed) for table in TABLES):
        for identifier in await rows.open_ids(tx):
            tx.enqueue(KIND, identifier, delay=SOON)
    for push in changed.get("push", ()):
        reference = push.get("ref") or ""
        if push.get("forced") and reference.startswith(HEADS):
            branch = reference.removeprefix(HEADS)
            for identifier in await rows.open_ids_on(tx, push["repository_id"], branch):
                tx.enqueue(rewritten.KIND, identifier)
                tx.enqueue("branch", "")  # GitHub's list says what is gone


def _ended(table: str, changed: Changed) -> bool:
    """Whether a job, run or dispatch has come to an end."""
    if table == "oot_dispatch":
        return any(row.get("state") not in {"pending", "sent"} for row in changed.get(table, ()))
    return any(row.get("status") == "completed" for row in changed.get(table, ()))
