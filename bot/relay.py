"""Who is told about an upstream event? An upstream event -> recorded dispatches and the tasks that send them."""

from __future__ import annotations

import secrets
import uuid
from typing import TYPE_CHECKING, Any

import structlog

from bot.domain.authors import trusted
from bot.errors import RetryLater
from bot.store import allowlists, dispatches, pulls

if TYPE_CHECKING:
    from bot.domain.allowlist import Entry
    from bot.settings import Settings
    from bot.store import Transaction

log = structlog.get_logger("bot.relay")

Row = dict[str, Any]


async def pull_request(tx: Transaction, settings: Settings, guid: str, body: Row) -> int:
    """Record one dispatch per backend of the allowlist for a pull request's event; returns how many are new.

    Only pull requests of a watched repository are relayed. Raises RetryLater while no allowlist is in force: an
    event that nobody could be told about yet is kept, not dropped.
    """
    repo, event = body["repository"]["full_name"], body["pull_request"]
    if not settings.is_upstream(repo):
        return 0
    allowlist = await allowlists.in_force(tx)
    if allowlist is None:
        raise RetryLater("no valid allowlist has been read yet", after=5)
    number, head, closing = event["number"], event["head"]["sha"], body["action"] == "closed"
    record = await pulls.get(tx, repo, number)
    stale = not closing and record is not None and _overtaken(record, head)
    await dispatches.supersede_pending(
        tx, repo, number, but_head=None if closing else record and record["head_sha"]
    )
    new = 0
    for entry in allowlist.for_event("pull_request"):
        if entry.policy == "trusted" and not closing and not trusted(event.get("author_association")):
            continue
        row = _row(tx, guid, body, entry) | {"state": "superseded" if stale else "pending"}
        if await dispatches.add(tx, row):
            new += 1
            if not stale:
                tx.enqueue("dispatch", row["id"])
    tx.enqueue("publish", f"{repo}#{number}")
    log.info("relayed", repo=repo, pull=number, action=body["action"], backends=new, stale=stale)
    return new


async def afresh(tx: Transaction, dispatch: Row, cause: str) -> str:
    """Record a new dispatch of what an older one was about; returns its key. The same cause makes one only."""
    delivery_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{dispatch['id']} {cause}"))
    row = dispatch | {
        "id": dispatches.identity(delivery_id, dispatch["backend"]),
        "delivery_id": delivery_id,
        "state": "pending",
        "attempts": 0,
        "created_at": tx.now,
        "dispatched_at": None,
        "token_jti": secrets.token_hex(16),
        "error": None,
    }
    await dispatches.add(tx, row)
    tx.enqueue("dispatch", row["id"])
    return str(row["id"])


def _row(tx: Transaction, guid: str, body: Row, entry: Entry) -> Row:
    event = body["pull_request"]
    return {
        "id": dispatches.identity(guid, entry.repo),
        "delivery_id": guid,
        "source_guid": guid,
        "upstream_repo": body["repository"]["full_name"],
        "event_type": "pull_request",
        "action": body["action"],
        "pr_number": event["number"],
        "head_sha": event["head"]["sha"],
        "base_sha": event["base"]["sha"],
        "labels": [label["name"] for label in event.get("labels") or ()],
        "backend": entry.repo,
        "backend_key": entry.key,
        "level": int(entry.level),
        "device": entry.device,
        "attempts": 0,
        "created_at": tx.now,
        "dispatched_at": None,
        "token_jti": secrets.token_hex(16),
        "error": None,
    }


def _overtaken(record: Row, head: str) -> bool:
    """Whether GitHub has told us of a newer head, or of the pull request's end, before this event was relayed."""
    return record["head_sha"] != head or record["state"] == "closed"
