"""Who is told about an upstream event? An upstream event -> recorded dispatches and the tasks that send them."""

from __future__ import annotations

import secrets
import uuid
from typing import TYPE_CHECKING, Any

import structlog

from bot.domain import verdict
from bot.domain.authors import trusted
from bot.domain.reading import Kind, read
from bot.errors import RetryLater
from bot.query import told
from bot.store import allowlists, dispatches, pulls, unsettled

if TYPE_CHECKING:
    from bot.domain.allowlist import Allowlist, Entry
    from bot.settings import Settings
    from bot.store import Transaction

log = structlog.get_logger("bot.relay")

Row = dict[str, Any]
NO_COMMIT = "0" * 40  # what GitHub writes where a ref did not exist or does not any more


async def pull_request(tx: Transaction, settings: Settings, guid: str, body: Row) -> None:
    """Record one dispatch per backend of the allowlist for a pull request's event.

    Only pull requests of a watched repository are relayed. Raises RetryLater while no allowlist is in force: an
    event that nobody could be told about yet is kept, not dropped.
    """
    repo, event = body["repository"]["full_name"], body["pull_request"]
    if not settings.is_upstream(repo):
        return
    allowlist = await _allowlist(tx)
    number, head, closing = event["number"], event["head"]["sha"], body["action"] == "closed"
    await dispatches.take_turns(tx, repo, number)
    record = await pulls.get(tx, repo, number)
    base = event["base"]["ref"]
    current, live = (head, base), not closing
    # GitHub has told us of what came later
    if record is not None and _is_newer(record, event, body["action"]):
        current, live = (record["head_sha"], record["base_ref"]), record["state"] == "open"
    stale = not closing and not (live and current == (head, base))
    await dispatches.supersede_unsent(tx, repo, number, but_head=current[0] if live else None)
    known = await _may_go(tx, repo, number, head, event.get("author_association"))
    about = _about(guid, body) | {
        "pr_number": number,
        "head_sha": head,
        "base_sha": event["base"]["sha"],
        "base_ref": base,
        "labels": [label["name"] for label in event.get("labels") or ()],
    }
    settled = set() if closing else await told.already(tx, about, body, allowlist)
    new = 0
    for entry in allowlist.for_event("pull_request"):
        if entry.key in settled:
            continue
        held = entry.policy == "trusted" and not known
        if held and closing and not await dispatches.told(tx, repo, number, entry.key):
            continue  # it never heard of this pull request
        over = closing and live  # reopened since: it would have them cancel what runs
        state = "superseded" if stale or over else "held" if held and not closing else "pending"
        new += await _record(tx, about, entry, state)
    for one in {number, *await _heirs(tx, repo, number, record)}:
        tx.publish(repo, one)
    log.info("relayed", repo=repo, pull=number, action=body["action"], backends=new, stale=stale)


async def _heirs(tx: Transaction, repo: str, number: int, record: Row | None) -> set[int]:
    """Return the pull requests that publish the gates of commits this one is, or was, at."""
    if record is None:
        return set()
    deciders = await pulls.deciders(tx, repo, await pulls.heads(tx, record))
    return {first for first, *_ in deciders.values()} - {number}


async def push(tx: Transaction, settings: Settings, guid: str, body: Row) -> None:
    """Record one dispatch per backend that wants pushes to this ref.

    Deletions are never relayed, and tags only to backends that name tags in `refs`.
    """
    repo, ref, after = body["repository"]["full_name"], body["ref"], body["after"]
    if not settings.is_upstream(repo) or body.get("deleted") or after == NO_COMMIT:
        return
    allowlist = await _allowlist(tx)
    before = None if body["before"] == NO_COMMIT else body["before"]
    about = _about(guid, body) | {
        "pr_number": None,
        "head_sha": after,
        "base_sha": before,
        "base_ref": None,
        "labels": [],
    }
    new = 0
    for entry in allowlist.for_event("push", ref):
        if ref.startswith("refs/heads/") or entry.refs:
            new += await _record(tx, about, entry, "pending")
    log.info("relayed", repo=repo, ref=ref, backends=new)


async def approve(tx: Transaction, repo: str, number: int, head: str, login: str) -> None:
    """Let one head of a pull request go to the backends that held it back."""
    await dispatches.take_turns(tx, repo, number)
    await dispatches.approve(tx, repo, number, head, login)
    record = await pulls.get(tx, repo, number)
    rows = await dispatches.of_pull(tx, repo, number, heads={head})
    counting = verdict.newest(
        [row for row in rows if record is None or row["base_ref"] == record["base_ref"]]
    )
    for row in [row for row in rows if row["state"] == "held"]:
        if row is counting.get(row["backend_key"]):
            # its time to start counts from now
            await dispatches.change(tx, row["id"], state="pending", created_at=tx.now)
            tx.enqueue("dispatch", row["id"])
        else:  # held back once more or told since, or for another base branch
            await dispatches.change(tx, row["id"], state="superseded")
    tx.publish(repo, number)


async def installed(tx: Transaction, account: str) -> int:
    """Send afresh what an account's repositories could not be told before; returns how many dispatches."""
    about = {(row["upstream_repo"], row["pr_number"]) for row in await dispatches.not_installed(tx, account)}
    for repo, number in sorted(about):  # in one order, so that no two wait for each other
        await dispatches.take_turns(tx, repo, number)
    waiting = await dispatches.not_installed(tx, account)
    for row in waiting:
        await afresh(tx, row, "the App may reach it now")
        tx.publish(row["upstream_repo"], row["pr_number"])
    return len(waiting)


async def resume(tx: Transaction, repo: str, number: int) -> None:
    """Send afresh what was dropped for another head though its own is the one after all.

    Of two pushes in one second the older may be heard of last, and drop what is due.
    """
    await dispatches.take_turns(tx, repo, number)
    record, allowlist = await pulls.get(tx, repo, number), await allowlists.in_force(tx)
    if record is None or record["state"] != "open" or allowlist is None:
        return
    taking_part = {entry.key for entry in allowlist.for_event("pull_request")}
    due = [
        row
        for row in await unsettled.dropped(tx, repo, [number])
        if (row["head_sha"], row["base_ref"]) == (record["head_sha"], record["base_ref"])
        and row["backend_key"] in taking_part
    ]
    for row in due:
        await afresh(tx, row, "its head stands")
    if due:
        tx.publish(repo, number)


async def afresh(tx: Transaction, dispatch: Row, cause: str) -> None:
    """Record a new dispatch of what an older one was about, if that still stands. The same cause makes one only.

    Whoever read the older one took the pull request's turn before. The backend's level and device are those of now.
    What has to be held back now is, whatever became of the older one: only an approval lets it go.
    """
    held = await is_held(tx, dispatch)
    if (held and dispatch["state"] == "held") or not await _stands(tx, dispatch):
        return
    delivery_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{dispatch['id']} {cause}"))
    state = "held" if held else "pending"
    row = dispatch | _unsent(tx, delivery_id, dispatch["backend"]) | {"state": state}
    if entry := await _entry(tx, dispatch["backend"]):
        row |= _listed(entry)
    await dispatches.add(tx, row)
    if not held:
        tx.enqueue("dispatch", row["id"])


async def _stands(tx: Transaction, dispatch: Row) -> bool:
    """Whether what an older dispatch was about is still to be tested: no newer commit, and not closed."""
    record = await pulls.get(tx, dispatch["upstream_repo"], dispatch["pr_number"])
    return record is not None and (record["state"], record["head_sha"]) == ("open", dispatch["head_sha"])


async def is_held(tx: Transaction, dispatch: Row) -> bool:
    """Whether a backend may not be told, as things stand now, what an older dispatch was about."""
    repo, number = dispatch["upstream_repo"], dispatch["pr_number"]
    entry = await _entry(tx, dispatch["backend"])
    if number is None or entry is None or entry.policy != "trusted":
        return False
    record = await pulls.get(tx, repo, number)
    association = record["author_association"] if record else None
    return not await _may_go(tx, repo, number, dispatch["head_sha"], association)


async def _may_go(tx: Transaction, repo: str, number: int, head: str, association: str | None) -> bool:
    """Whether a head may go to backends that trust only some authors: its author is one, or somebody approved it."""
    return trusted(association) or await dispatches.approved(tx, repo, number, head)


async def _allowlist(tx: Transaction) -> Allowlist:
    allowlist = await allowlists.in_force(tx)
    if allowlist is None:
        raise RetryLater("no valid allowlist has been read yet", after=5)
    return allowlist


async def _entry(tx: Transaction, backend: str) -> Entry | None:
    allowlist = await allowlists.in_force(tx)
    return allowlist.find(backend) if allowlist else None


def _listed(entry: Entry) -> Row:
    """Return what a dispatch says of its backend."""
    return {
        "backend": entry.repo,
        "backend_key": entry.key,
        "level": int(entry.level),
        "device": entry.device,
    }


async def _record(tx: Transaction, about: Row, entry: Entry, state: str) -> bool:
    """Record one dispatch and have it sent; returns False when it was recorded before."""
    row = about | _unsent(tx, about["delivery_id"], entry.repo)
    row |= _listed(entry) | {"state": state}
    fresh = await dispatches.add(tx, row)
    if fresh and state == "pending":
        tx.enqueue("dispatch", row["id"])
    return fresh


def _about(guid: str, body: Row) -> Row:
    """Return what all dispatches of one event have in common."""
    event = "pull_request" if "pull_request" in body else "push"
    return {
        "delivery_id": guid,
        "source_guid": guid,
        "upstream_repo": body["repository"]["full_name"],
        "event_type": event,
        "action": body.get("action"),
    }


def _unsent(tx: Transaction, delivery_id: str, backend: str) -> Row:
    """Return what a dispatch to a backend starts with."""
    return {
        "id": dispatches.identity(delivery_id, backend),
        "delivery_id": delivery_id,
        "backend": backend,
        "attempts": 0,
        "created_at": tx.now,
        "dispatched_at": None,
        "heard_at": None,
        "token_jti": secrets.token_hex(16),
        "run_id": None,
        "error": None,
    }


def _is_newer(record: Row, event: Row, action: str) -> bool:
    """Whether a record is certainly later than an event: in one second either may be, but nothing precedes `opened`."""
    at = read(event, ("updated_at",), Kind.TIME)
    if at is None or record["updated_at"] is None:
        return False
    return bool(record["updated_at"] > at or (action == "opened" and record["updated_at"] == at))
