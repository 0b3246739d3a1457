"""dispatch: one recorded dispatch (key: its id) is sent to its backend.

Neither kind of dispatch can be asked whether it arrived, so they are at-least-once: when the answer was lost, whatever
shows that it did is looked for before it is sent again, with the same delivery_id and token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot import callback_token
from bot.domain.dispatch import client_payload, inputs, refusal
from bot.domain.reading import decode, show_time
from bot.errors import GitHubRefused, GiveUp, NotInstalled, RetryLater
from bot.store import allowlists, dispatches, inbox, jobs, secrets

if TYPE_CHECKING:
    from bot.context import Context
    from bot.domain.allowlist import Entry
    from bot.github import Client
    from bot.store import Transaction
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.dispatch")

Row = dict[str, Any]


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
    try:
        await _try(context, dispatch, entry)
    except NotInstalled as error:
        await _settle(context, dispatch, state="not_installed", error=error.message)
    except GitHubRefused as error:
        state, reason = refusal(error.status, error.message)
        await _settle(context, dispatch, state=state, error=reason)
    except GiveUp as error:
        await _settle(context, dispatch, state="failed", error=str(error))


async def _try(context: Context, dispatch: Row, entry: Entry) -> None:
    """Send it once; raises GiveUp and GitHubRefused when it can never be sent, RetryLater when it can later."""
    patience = entry.start_timeout or context.settings.start_timeout
    if context.clock.now() - dispatch["created_at"] > patience * 1000:
        raise GiveUp("GitHub did not take it in time")
    if dispatch["dispatched_at"] is not None and (found := await _arrived(context, dispatch, entry)):
        await _settle(context, dispatch, state="sent", run_id=found["run_id"])
        return
    async with context.store.transaction() as tx:
        if not await dispatches.intend(tx, dispatch):
            return
        payload = await _payload(tx, context, dispatch, entry)
    try:
        run_id = await _send(context, dispatch, entry, payload)
    except RetryLater as error:
        if (
            error.after is not None
        ):  # GitHub asked us to wait: it has done nothing, there is nothing to look for
            async with context.store.transaction() as tx:
                await dispatches.change(tx, dispatch["id"], dispatched_at=None)
        raise
    log.info("dispatched", backend=dispatch["backend"], delivery_id=dispatch["delivery_id"], run=run_id)
    await _settle(context, dispatch, state="sent", run_id=run_id)


async def _send(context: Context, dispatch: Row, entry: Entry, payload: Row) -> str | None:
    """Make the call; returns the id of the run it started where GitHub says it."""
    client = _client(context, dispatch, entry)
    if entry.dispatch == "repository":
        if entry.repository_id is not None:
            await _about(client, entry)
        body = {"event_type": dispatch["event_type"], "client_payload": payload}
        await client.post(client.path("dispatches"), data=body)
        return None
    about = await _about(client, entry)
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
    about: Row = await client.getitem(client.path("").rstrip("/"))
    if entry.repository_id not in {None, about["id"]}:
        raise GiveUp(
            f"{entry.repo} is repository {about['id']} now: the allowlist pins repository_id {entry.repository_id}"
        )
    return about


def _client(context: Context, dispatch: Row, entry: Entry) -> Client:
    if entry.dispatch == "workflow":
        return context.relay.client(dispatch["backend"], actions="write")
    return context.relay.client(dispatch["backend"], contents="write")


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


async def _arrived(context: Context, dispatch: Row, entry: Entry) -> Row | None:
    """Return `run_id` (if that is known) when an attempt whose answer was lost has reached the backend."""
    async with context.store.read() as tx:
        if await jobs.reported(tx, dispatch["id"]):
            return {"run_id": None}
        if await dispatches.others_since(tx, dispatch, dispatch["dispatched_at"]):
            return None  # a run could be theirs: rather twice than never
    client = context.relay.client(dispatch["backend"], actions="read")
    since = {
        "event": f"{entry.dispatch}_dispatch",
        "created": f">={show_time(dispatch['dispatched_at'] // 1000 * 1000)}",
    }
    try:
        listed = await client.getitem(client.path("actions/runs{?event,created}"), since)
    except GitHubRefused:
        return None
    runs = [run for run in listed["workflow_runs"] if _could_be_ours(run, entry)]
    if entry.dispatch == "workflow":  # reports have to be about this very run, so it must be certain
        return {"run_id": str(runs[0]["id"])} if len(runs) == 1 else None
    return {"run_id": None} if runs else None


def _could_be_ours(run: Row, entry: Entry) -> bool:
    """Whether an App started the run, of the right workflow where one is named."""
    if entry.dispatch == "repository":
        return True
    file: str = run["path"].partition("@")[0].rpartition("/")[2]
    return file == entry.workflow_file and bool(run["actor"]["type"] == "Bot")


async def _settle(
    context: Context, dispatch: Row, *, state: str, error: str | None = None, run_id: str | None = None
) -> None:
    if error:
        log.warning("not dispatched", backend=dispatch["backend"], state=state, reason=error)
    async with context.store.transaction() as tx:
        await dispatches.change(tx, dispatch["id"], state=state, error=error, run_id=run_id)
        if dispatch["pr_number"] is not None:
            tx.enqueue("publish", f"{dispatch['upstream_repo']}#{dispatch['pr_number']}")
