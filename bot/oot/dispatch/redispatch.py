"""Dispatching again: a new dispatch of what an older one was about."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from bot.ingest import record_reads
from bot.oot.allowlist import rows as allowlists
from bot.oot.dispatch import approval, rows
from bot.oot.results.store import dispatches
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.oot.results.tables import DispatchRow


async def redispatch(tx: Transaction, dispatch: DispatchRow, cause: str) -> None:
    """Record a new dispatch of what an older one was about, unless that is outdated.

    The same cause makes one only: the new ids are derived from its text. Callers have locked the pull request before
    they read the older dispatch. Level and device are those the backend has now; so is its policy, whatever became of
    the older dispatch: what it holds back takes an approval.
    """
    held = await approval.is_held(tx, dispatch)
    waits = (held and dispatch["state"] == "held") or dispatch["state"] == "waiting"
    if waits or not await _is_current(tx, dispatch):
        return
    event = dispatch | {"delivery_id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{dispatch['id']} {cause}"))}
    entry = await approval.listed_entry(tx, dispatch["backend"])
    backend = rows.backend_columns(entry, dispatch["event_type"]) if entry else event
    row = rows.new_dispatch(tx, event, backend, state="held" if held else "pending")
    await dispatches.add(tx, row)
    if not held:
        tx.enqueue("dispatch", row["id"])


async def redispatch_account(tx: Transaction, account: str) -> int:
    """Dispatch again what could not be sent to an account's repositories; returns how many dispatches."""
    pulls = {(row["upstream_repo"], row["pr_number"]) for row in await dispatches.not_installed(tx, account)}
    for repo, number in sorted(pulls):  # in one order, so that two transactions never wait for each other
        await dispatches.lock_pull(tx, repo, number)
    unsent = await dispatches.not_installed(tx, account)
    for row in unsent:
        await redispatch(tx, row, "the App may reach it now")
        request_publish(tx, row["upstream_repo"], row["pr_number"])
    return len(unsent)


async def redispatch_superseded(tx: Transaction, repo: str, number: int) -> None:
    """Dispatch again what was dropped in favour of another head, if its own is the current one after all.

    Of two pushes within one second the older may arrive last and supersede what is due.
    """
    await dispatches.lock_pull(tx, repo, number)
    record, allowlist = await record_reads.get(tx, repo, number), await allowlists.in_force(tx)
    if record is None or record["state"] != "open" or allowlist is None:
        return
    participants = {entry.key for entry in allowlist.for_event("pull_request")}
    due = [
        row
        for row in await rows.superseded_unsent(tx, repo, [number])
        if (row["head_sha"], row["base_ref"]) == (record["head_sha"], record["base_ref"])
        and row["backend_key"] in participants
    ]
    for row in due:
        await redispatch(tx, row, "its head stands")
    if due:
        request_publish(tx, repo, number)


async def _is_current(tx: Transaction, dispatch: DispatchRow) -> bool:
    """Whether the pull request of an older dispatch is open and still at its head."""
    if dispatch["pr_number"] is None:
        return False
    record = await record_reads.get(tx, dispatch["upstream_repo"], dispatch["pr_number"])
    return record is not None and (record["state"], record["head_sha"]) == ("open", dispatch["head_sha"])
