"""Approvals: who may have a pull request run on backends that trust only some authors; the task `approve`.

The task (key: the GUID of the labeled delivery) follows the label `oot/ok-to-test`. The label counts if GitHub says
that the person who added it may write to the repository, and only for the head it was added on: later pushes need it
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GiveUp
from bot.ingest import record_reads
from bot.oot.allowlist import rows as allowlists
from bot.oot.results import task_keys
from bot.oot.results.store import dispatches
from bot.oot.results.task_keys import request_publish
from bot.oot.verdict.facts import newest, of_own_events

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.results.tables import DispatchRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.dispatch.approval")

TRUSTED_ASSOCIATIONS = frozenset({"OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR"})
WRITE_ROLES = frozenset({"admin", "maintain", "write"})


async def approve_labeled(context: Context, task: Task) -> None:
    """Release the head to the backends that it is held back from, if the person who added the label may approve it."""
    async with context.store.read() as tx:
        _, body = await task_keys.read_delivery(context, tx, task)
    try:
        repo, login = body["repository"]["full_name"], body["sender"]["login"]
        number, head = body["pull_request"]["number"], body["pull_request"]["head"]["sha"]
    except (KeyError, TypeError) as error:
        raise GiveUp(f"the labeled event lacks what an approval needs: {error!r}") from error
    if not context.settings.is_upstream(repo):
        return
    role = await context.github.role(repo, login)
    if not may_write(role):
        log.warning("label without effect", repo=repo, pull=number, login=login, role=role)
        return
    async with context.store.transaction() as tx:
        await approve(tx, repo, number, head, login)
    log.info("approved", repo=repo, pull=number, head=head, login=login)


def may_write(role: str | None) -> bool:
    """Return whether a role in a repository, as GitHub names it, includes write access and so the right to approve."""
    return role in WRITE_ROLES


async def approve(tx: Transaction, repo: str, number: int, head: str, login: str) -> None:
    """Release one head of a pull request to the backends that it is held back from."""
    await dispatches.lock_pull(tx, repo, number)
    await dispatches.approve(tx, repo, number, head, login)
    record = await record_reads.get(tx, repo, number)
    rows = await dispatches.read_for_pull(tx, repo, number, heads={head})
    rows = of_own_events(rows)  # pushes are never held back
    counting = newest([row for row in rows if record is None or row["base_ref"] == record["base_ref"]])
    for row in rows:
        if row["state"] != "held":
            continue
        if row is counting.get(row["backend_key"]):
            # START_TIMEOUT counts from now
            await dispatches.change(tx, row["id"], state="pending", created_at=tx.now)
            tx.enqueue("dispatch", row["id"])
        else:  # a later dispatch has replaced it, or it was for another base branch
            await dispatches.change(tx, row["id"], state="superseded")
    request_publish(tx, repo, number)


async def is_held(tx: Transaction, dispatch: DispatchRow) -> bool:
    """Return whether its backend's policy, as it is now, holds the head of an older dispatch back."""
    repo, number, head = dispatch["upstream_repo"], dispatch["pr_number"], dispatch["head_sha"]
    entry = await listed_entry(tx, dispatch["backend"])
    if number is None or head is None or entry is None or entry.policy != "trusted":
        return False
    record = await record_reads.get(tx, repo, number)
    association = record["author_association"] if record else None
    return not await is_trusted(tx, repo, number, head, association)


async def is_trusted(tx: Transaction, repo: str, number: int, head: str, association: str | None) -> bool:
    """Return whether a head may run on backends that trust only some authors: by its author, or by an approval.

    `association` is GitHub's word on the author's relation to the repository.
    """
    return association in TRUSTED_ASSOCIATIONS or await dispatches.is_approved(tx, repo, number, head)


async def listed_entry(tx: Transaction, backend: str) -> Entry | None:
    """Return a backend's entry on the allowlist in force."""
    allowlist = await allowlists.in_force(tx)
    return allowlist.find(backend) if allowlist else None
