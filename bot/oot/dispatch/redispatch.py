"""Dispatching later: once a pull request is approved, again on request, and after its labels have changed."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GiveUp
from bot.ingest import record_store
from bot.oot.allowlist import versions as allowlists
from bot.oot.dispatch import commits, rows
from bot.oot.dispatch.decide import decide
from bot.oot.results import dispatches, task_keys
from bot.oot.results.task_keys import parse_pull, pull_key, request_publish
from bot.oot.verdict.verdict import is_skipped, newest_by_backend, of_own_events

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.record_rows import PullRow
    from bot.oot.allowlist.entry import Entry
    from bot.oot.dispatch.decide import Commit
    from bot.oot.results.tables import DispatchRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.dispatch.redispatch")

TRUSTED_ASSOCIATIONS = frozenset({"OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR"})
WRITE_ROLES = frozenset({"admin", "maintain", "write"})


async def approve_labeled(context: Context, task: Task) -> None:
    """Release the head to the backends it is held back from, if the person who added the label may approve it."""
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
    """Release a head of a pull request to the backends it is held back from."""
    await dispatches.lock_pull(tx, repo, number)
    await dispatches.approve_head(tx, repo, number, head, login)
    record = await record_store.read_pull(tx, repo, number)
    rows = await dispatches.read_dispatches_of_pull(tx, repo, number, heads={head})
    rows = of_own_events(rows)  # pushes are never held back
    counting = newest_by_backend(
        [row for row in rows if record is None or row["base_ref"] == record["base_ref"]]
    )
    for row in rows:
        if row["state"] != "held":
            continue
        if row is counting.get(row["backend_key"]):
            # START_TIMEOUT counts from now
            await dispatches.change_dispatch(tx, row["id"], state="pending", created_at=tx.now)
            tx.enqueue("dispatch", row["id"])
        else:  # a later dispatch has replaced it, or it was for another base branch
            await dispatches.change_dispatch(tx, row["id"], state="superseded")
    request_publish(tx, repo, number)


async def is_held(tx: Transaction, dispatch: DispatchRow) -> bool:
    """Return whether the backend's current policy holds back the head of an older dispatch."""
    repo, number, head = dispatch["upstream_repo"], dispatch["pr_number"], dispatch["head_sha"]
    entry = await listed_entry(tx, dispatch["backend"])
    if number is None or head is None or entry is None or entry.policy != "trusted":
        return False
    record = await record_store.read_pull(tx, repo, number)
    association = record["author_association"] if record else None
    return not await is_trusted(tx, repo, number, head, association)


async def is_trusted(tx: Transaction, repo: str, number: int, head: str, association: str | None) -> bool:
    """Return whether a head may run on backends that trust only some authors: through its author or an approval.

    `association` is GitHub's word for the author's relation to the repository.
    """
    return association in TRUSTED_ASSOCIATIONS or await dispatches.is_head_approved(tx, repo, number, head)


async def listed_entry(tx: Transaction, backend: str) -> Entry | None:
    """Return a backend's entry on the allowlist in force."""
    allowlist = await allowlists.read_in_force(tx)
    return allowlist.find(backend) if allowlist else None


async def redispatch(tx: Transaction, dispatch: DispatchRow, cause: str) -> None:
    """Record a new dispatch of what an older one was about, unless it is outdated.

    A cause makes only one: the new ids are derived from its text. Callers have locked the pull request before
    they read the older dispatch. Level, device and policy are those the backend has now, whatever became of
    the older dispatch: what the policy holds back needs an approval.
    """
    held = await is_held(tx, dispatch)
    waits = (held and dispatch["state"] == "held") or dispatch["state"] == "waiting"
    if waits or not await _is_current(tx, dispatch):
        return
    event = dispatch | {"delivery_id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{dispatch['id']} {cause}"))}
    entry = await listed_entry(tx, dispatch["backend"])
    backend = rows.backend_columns(entry, dispatch["event_type"]) if entry else event
    row = rows.new_dispatch(tx, event, backend, state="held" if held else "pending")
    await dispatches.add_dispatch(tx, row)
    if not held:
        tx.enqueue("dispatch", row["id"])


async def redispatch_account(tx: Transaction, account: str) -> int:
    """Redispatch what could not be sent to an account's repositories; returns how many dispatches."""
    pulls = {
        (row["upstream_repo"], row["pr_number"]) for row in await dispatches.read_not_installed(tx, account)
    }
    for repo, number in sorted(pulls):  # in one order, so that two transactions never wait for each other
        await dispatches.lock_pull(tx, repo, number)
    unsent = await dispatches.read_not_installed(tx, account)
    for row in unsent:
        await redispatch(tx, row, "the App may reach it now")
        request_publish(tx, row["upstream_repo"], row["pr_number"])
    return len(unsent)


async def redispatch_superseded(tx: Transaction, repo: str, number: int) -> None:
    """Redispatch what was dropped in favour of another head, if its own head is the current one after all.

    Of two pushes within one second the older may arrive last and supersede what is due.
    """
    await dispatches.lock_pull(tx, repo, number)
    record, allowlist = await record_store.read_pull(tx, repo, number), await allowlists.read_in_force(tx)
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


async def request_selection(tx: Transaction, repo: str, number: int | None) -> None:
    """Request a new selection for a pull request, where any entry is selective."""
    if number is None or tx.replaying:
        return
    allowlist = await allowlists.read_in_force(tx)
    if allowlist and any(entry.selective for entry in allowlist.entries):
        tx.enqueue("select", pull_key(repo, number))


async def select_again(context: Context, task: Task) -> None:
    """Dispatch the newest head to backends that did not run it, where the rules now select it."""
    repo, number = parse_pull(task)
    async with context.store.read() as tx:
        record, allowlist = await record_store.read_pull(tx, repo, number), await allowlists.read_in_force(tx)
        if record is None or allowlist is None or not await read_skipped(tx, record):
            return
        commit = await commits.known_commit(tx, allowlist, record)
    async with context.store.transaction() as tx:
        await dispatches.lock_pull(tx, repo, number)
        record = await record_store.read_pull(tx, repo, number)
        if record is None or record["head_sha"] != commit.sha:
            return
        commit = replace(commit, labels=frozenset(record["labels"] or ()), draft=bool(record["draft"]))
        if sent := await _send_selected(tx, context.settings, record, commit):
            request_publish(tx, repo, number)
    log.info("selected again", repo=repo, pull=number, head=commit.sha, backends=sent)


async def read_skipped(tx: Transaction, record: PullRow) -> list[DispatchRow]:
    """Return the counting dispatches of a pull request's newest head that a rule decided against."""
    repo, number, head = record["repo"], record["number"] or 0, record["head_sha"] or ""
    rows = await dispatches.read_dispatches_of_pull(tx, repo, number, heads={head})
    counting = newest_by_backend(
        [row for row in of_own_events(rows) if row["base_ref"] == record["base_ref"]]
    )
    return [row for row in counting.values() if is_skipped(row)]


async def _is_current(tx: Transaction, dispatch: DispatchRow) -> bool:
    """Whether the pull request of an older dispatch is open and still at its head."""
    if dispatch["pr_number"] is None:
        return False
    record = await record_store.read_pull(tx, dispatch["upstream_repo"], dispatch["pr_number"])
    return record is not None and (record["state"], record["head_sha"]) == ("open", dispatch["head_sha"])


async def _send_selected(tx: Transaction, settings: Settings, record: PullRow, commit: Commit) -> int:
    """Dispatch a head to the backends that the rules now select; returns how many."""
    allowlist = await allowlists.read_in_force(tx)
    if allowlist is None:
        return 0
    same = await commits.read_same(tx, settings, allowlist.entries, record["repo"], commit.sha)
    commit, sent = replace(commit, same=same), 0
    for row in await read_skipped(tx, record):
        entry = allowlist.find(row["backend"])
        decision = decide(entry, commit, prefixes=settings.label_prefixes) if entry else None
        if decision and decision.send:
            await redispatch(tx, row, f"selected by {decision.rule}")
            sent += 1
    return sent
