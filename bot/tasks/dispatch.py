"""dispatch: one recorded dispatch (key: its id) is sent to its backend.

GitHub answers a dispatch without an id, so it is at-least-once: when the answer was lost, whatever shows that it arrived
is looked for before it is sent again, with the same delivery_id and token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from bot import callback_token
from bot.domain.dispatch import client_payload
from bot.domain.reading import show_time
from bot.errors import GitHubRefused, GiveUp, NotInstalled
from bot.store import dispatches, inbox, jobs, secrets

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store import Transaction
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.dispatch")

Row = dict[str, Any]


async def run(context: Context, task: Task) -> None:
    """Send the dispatch unless it is sent, dropped or known to have arrived."""
    async with context.store.read() as tx:
        dispatch = await dispatches.get(tx, task.key)
    if dispatch is None:
        raise GiveUp(f"dispatch {task.key} is not stored any more")
    if dispatch["state"] != "pending":
        return
    if dispatch["attempts"] and await _arrived(context, dispatch):
        await _settle(context, dispatch, state="sent")
        return
    async with context.store.transaction() as tx:
        intent = {"attempts": dispatch["attempts"] + 1, "dispatched_at": tx.now}
        await dispatches.change(tx, task.key, **intent)
        payload = await _payload(tx, context, dispatch)
    try:
        await _send(context, dispatch, payload)
    except NotInstalled as error:
        await _settle(context, dispatch, state="not_installed", error=error.message)
    except GitHubRefused as error:
        gone = error.status == 404
        reason = "the repository is not there, or the App may not dispatch to it" if gone else str(error)
        await _settle(context, dispatch, state="not_installed" if gone else "failed", error=reason)
    else:
        log.info("dispatched", backend=dispatch["backend"], delivery_id=dispatch["delivery_id"])
        await _settle(context, dispatch, state="sent")


async def _send(context: Context, dispatch: Row, payload: Row) -> None:
    client = context.relay.client(dispatch["backend"], contents="write")
    body = {"event_type": dispatch["event_type"], "client_payload": payload}
    await client.post(client.path("dispatches"), data=body)


async def _payload(tx: Transaction, context: Context, dispatch: Row) -> Row:
    source = await inbox.find(tx, dispatch["source_guid"])
    if source is None:
        raise GiveUp(f"the delivery {dispatch['source_guid']} to be relayed is not stored any more")
    return client_payload(
        event_type=dispatch["event_type"],
        delivery_id=dispatch["delivery_id"],
        payload=msgspec.json.decode(source["body"]),
        callback_url=f"{context.settings.url}/api/oot/callback",
        callback_token=callback_token.make(dispatch, await secrets.key(tx, "callback")),
    )


async def _arrived(context: Context, dispatch: Row) -> bool:
    """Return whether an earlier attempt, whose answer was lost, is known to have reached the backend."""
    async with context.store.read() as tx:
        if await jobs.reported(tx, dispatch["id"]):
            return True
        if await dispatches.others_since(tx, dispatch, dispatch["dispatched_at"]):
            return False  # a run could be theirs: rather twice than never
    client = context.relay.client(dispatch["backend"], actions="read")
    since = {
        "event": "repository_dispatch",
        "created": f">={show_time(dispatch['dispatched_at'] // 1000 * 1000)}",
    }
    try:
        listed = await client.getitem(client.path("actions/runs{?event,created}"), since)
    except GitHubRefused:
        return False
    return bool(listed["total_count"])


async def _settle(context: Context, dispatch: Row, *, state: str, error: str | None = None) -> None:
    async with context.store.transaction() as tx:
        await dispatches.change(tx, dispatch["id"], state=state, error=error)
        if dispatch["pr_number"] is not None:
            tx.enqueue("publish", f"{dispatch['upstream_repo']}#{dispatch['pr_number']}")
