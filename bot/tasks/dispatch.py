"""dispatch: one recorded dispatch (key: its id) is sent to its backend.

Neither kind of dispatch can be asked whether it arrived, so they are at-least-once: when the answer was lost, whatever
shows that it did is looked for before it is sent again, with the same delivery_id and token.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from bot import callback_token
from bot.domain.dispatch import client_payload, inputs, permission_may_be_unknown, refusal
from bot.domain.reading import decode
from bot.errors import GitHubRefused, GiveUp, NotInstalled, RetryLater
from bot.store import allowlists, dispatches, inbox, secrets
from bot.store.insistence import insist
from bot.tasks import arrival

if TYPE_CHECKING:
    from bot.context import Context
    from bot.domain.allowlist import Entry
    from bot.github import Client
    from bot.store import Transaction
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.dispatch")

Row = dict[str, Any]
SENT_LATE = "superseded while it was being sent"
TRIES = 3  # against a refusal that may pass
PERMISSIONS_KNOWN_AFTER = 6.0  # seconds, where they take longer than bot.tokens reckons with


async def run(context: Context, task: Task) -> None:
    """Send the dispatch unless it is sent, dropped or known to have arrived."""
    async with context.store.read() as tx:
        dispatch = await dispatches.get(tx, task.key)
        allowlist = await allowlists.in_force(tx)
    if dispatch is None:
        raise GiveUp(f"dispatch {task.key} is not stored any more")
    if dispatch["state"] != "pending":
        return
    entry = allowlist.find(dispatch["backend"]) if allowlist else None
    if entry is None:
        reason = "it was taken off the allowlist before this was sent"
        await _settle(context, dispatch, state="failed", error=reason)
        return
    refused = {"dispatched_at": dispatch["dispatched_at"]}  # what was refused was not sent
    try:
        await _try(context, dispatch, entry)
    except NotInstalled as error:
        await _settle(context, dispatch, state="not_installed", error=error.message, **refused)
    except GitHubRefused as error:
        state, reason = refusal(error.status, error.message)
        unknown = permission_may_be_unknown(error.status, error.message)
        if unknown and dispatch["attempts"] + 1 < TRIES:
            async with context.store.transaction() as tx:
                tried = dispatch["attempts"] + 1
                await dispatches.change(tx, dispatch["id"], attempts=tried, **refused)
            raise RetryLater(reason, after=PERMISSIONS_KNOWN_AFTER) from error
        await _settle(context, dispatch, state=state, error=reason, **refused)
    except GiveUp as error:
        await _settle(context, dispatch, state="failed", error=str(error), **refused)


async def _try(context: Context, dispatch: Row, entry: Entry) -> None:
    """Send it once; raises GiveUp and GitHubRefused when it can never be sent, RetryLater when it can later."""
    patience = entry.start_timeout or context.settings.start_timeout
    if context.clock.now() - dispatch["created_at"] > patience * 1000:
        raise GiveUp("GitHub did not take it in time")
    if dispatch["dispatched_at"] is not None and (found := await arrival.find(context, dispatch, entry)):
        await _settle(context, dispatch, state="sent", run_id=found["run_id"])
        return
    needs = {"actions" if entry.dispatch == "workflow" else "contents": "write"}
    client = context.relay.client(dispatch["backend"], **needs)
    await context.relay.tokens.get(dispatch["backend"], needs)  # after the intent nothing may take time
    asked = entry.dispatch == "workflow" or entry.repository_id is not None
    about = await _about(client, entry) if asked else {}
    async with context.store.transaction() as tx:
        if not await dispatches.intend(tx, dispatch):
            return
        payload = await _payload(tx, context, dispatch, entry)
    try:
        run_id = await _send(client, dispatch, entry, payload, about)
    except RetryLater as error:
        if error.after is not None:  # GitHub asked us to wait: this attempt has done nothing
            async with context.store.transaction() as tx:
                await dispatches.change(tx, dispatch["id"], dispatched_at=dispatch["dispatched_at"])
        raise
    log.info("dispatched", backend=dispatch["backend"], delivery_id=dispatch["delivery_id"], run=run_id)
    await _settle(context, dispatch, state="sent", run_id=run_id, dispatched_at=tx.now)


async def _send(client: Client, dispatch: Row, entry: Entry, payload: Row, about: Row) -> str | None:
    """Make the call; returns the id of the run it started where GitHub says it."""
    if entry.dispatch == "repository":
        body = {"event_type": dispatch["event_type"], "client_payload": payload}
        await client.post(client.path("dispatches"), data=body)
        return None
    body = {"ref": about["default_branch"], "inputs": inputs(payload), "return_run_details": True}
    url = client.path("actions/workflows/{file}/dispatches")
    try:
        answer = await client.post(url, {"file": entry.workflow_file}, data=body)
    except GitHubRefused as error:
        if error.status == 404:
            raise GiveUp(
                f"there is no workflow {entry.workflow_file} on {about['default_branch']}"
            ) from error
        raise
    return str(answer["workflow_run_id"]) if isinstance(answer, dict) else None


async def _about(client: Client, entry: Entry) -> Row:
    """Return the repository; raises GiveUp when it is not the one the allowlist pins."""
    about: Row = await client.repository()
    if entry.repository_id not in {None, about["id"]}:
        raise GiveUp(
            f"{entry.repo} is repository {about['id']} now: the allowlist pins repository_id {entry.repository_id}"
        )
    return about


async def _payload(tx: Transaction, context: Context, dispatch: Row, entry: Entry) -> Row:
    source = await inbox.find(tx, dispatch["source_guid"])
    if source is None:
        raise GiveUp(f"the delivery {dispatch['source_guid']} to be relayed is not stored any more")
    return client_payload(
        event_type=dispatch["event_type"],
        delivery_id=dispatch["delivery_id"],
        payload=decode(source["body"]),
        callback_url=f"{context.settings.url}/api/oot/callback",
        callback_token=callback_token.make(dispatch, await secrets.key(tx, "callback")),
        as_input=entry.dispatch == "workflow",
    )


async def _settle(
    context: Context, dispatch: Row, *, state: str, error: str | None = None, **more: Any
) -> None:
    """Keep what became of a dispatch, and let whoever shows it look again.

    A database that is away for a moment is waited for: forgotten, it would be sent a second time.
    """
    if error:
        log.warning("not dispatched", backend=dispatch["backend"], state=state, reason=error)
    await insist(context.clock, partial(_store, context, dispatch, state, error, more))


async def _store(context: Context, dispatch: Row, state: str, error: str | None, more: Row) -> None:
    async with context.store.transaction() as tx:
        settled = await dispatches.settle(tx, dispatch["id"], state=state, error=error, **more)
        now = None if settled else await dispatches.get(tx, dispatch["id"])
        if now and state == "sent" != now["state"]:  # its reports count, so it stays visible that it went
            log.warning("dispatched although it was dropped meanwhile", backend=dispatch["backend"])
            await dispatches.change(tx, dispatch["id"], error=SENT_LATE, **more)
        tx.publish(dispatch["upstream_repo"], dispatch["pr_number"])
