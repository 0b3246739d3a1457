"""The task `dispatch`: one recorded dispatch (key: its id) is sent to its backend.

GitHub has no idempotency key for either kind of dispatch, so they are at-least-once: after a lost answer, signs that
the dispatch arrived are looked for before it is sent again, with the same delivery_id and token. A run that could
belong to another dispatch is not taken for its own: sending twice is better than never.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from bot.core.errors import GitHubRefused, GiveUp, NotInstalled, RetryLater
from bot.core.json_fields import decode, iso_time
from bot.db import secrets
from bot.db.db_errors import retry_until_stored
from bot.github.enterprise_server import RUN_DETAILS
from bot.ingest import inbox
from bot.oot.allowlist import rows as allowlists
from bot.oot.dispatch import machines
from bot.oot.dispatch.payload import client_payload, closing, inputs, permission_may_be_unknown, refusal
from bot.oot.reports import callback_token
from bot.oot.reports.store import pings
from bot.oot.results.store import dispatches, jobs
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.github.client import Client
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.results.tables import DispatchRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.dispatch.send_dispatch")

BISECT = "bisect"  # the source of deliveries that have one commit run, and the member that says why
SENT_LATE = "superseded while it was being sent"
MOST_REFUSALS = 3  # of a kind that may pass
PERMISSIONS_KNOWN_AFTER = 6.0  # seconds, where propagation takes longer than bot.github.tokens allows for
MOST_DELAY = 600_000  # milliseconds from a dispatch to its run at GitHub


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A dispatch whose answer was lost and that has reached its backend."""

    run_id: str | None  # None: not certain which


async def send_dispatch(context: Context, task: Task) -> None:
    """Send the dispatch unless it was sent, was superseded or is known to have arrived."""
    async with context.store.read() as tx:
        dispatch = await dispatches.get_dispatch(tx, task.key)
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
        attempts = dispatch["attempts"] + 1
        if permission_may_be_unknown(error.status, error.message) and attempts < MOST_REFUSALS:
            async with context.store.transaction() as tx:
                await dispatches.change(tx, dispatch["id"], attempts=attempts, **refused)
            raise RetryLater(reason, after=PERMISSIONS_KNOWN_AFTER) from error
        await _settle(context, dispatch, state=state, error=reason, **refused)
    except GiveUp as error:
        await _settle(context, dispatch, state="failed", error=str(error), **refused)


async def _try(context: Context, dispatch: DispatchRow, entry: Entry) -> None:
    """Send it once; raises GiveUp and GitHubRefused when it can never be sent, RetryLater when it can later."""
    timeout = entry.start_timeout or context.settings.start_timeout
    if context.clock.now() - dispatch["created_at"] > timeout * 1000 + machines.patience(entry):
        raise GiveUp("GitHub did not take it in time")
    if arrival := await _find_arrival(context, dispatch, entry):
        await _settle(context, dispatch, state="sent", run_id=arrival.run_id)
        return
    needs = {"actions" if entry.dispatch == "workflow" else "contents": "write"}
    client = context.backend_github.client(dispatch["backend"], since=None, **needs)
    # everything slow comes before the intent is recorded
    await context.backend_github.tokens.get(dispatch["backend"], needs)
    repository = await read_pinned(client, entry)

    async def begin(tx: Transaction) -> tuple[dict[str, Any], int] | None:
        if await machines.hold_back(tx, dispatch, entry) or not await dispatches.begin_attempt(tx, dispatch):
            return None
        return await _payload(tx, context, dispatch, entry), tx.now

    if (begun := await context.store.write(begin)) is None:
        return
    payload, began_at = begun
    try:
        run_id = await post_dispatch(client, entry, dispatch["event_type"], payload, repository)
    except RetryLater as error:
        if error.after is not None:  # GitHub asked us to wait: this attempt has done nothing
            async with context.store.transaction() as tx:
                await dispatches.change(tx, dispatch["id"], dispatched_at=dispatch["dispatched_at"])
        raise
    log.info("dispatched", backend=dispatch["backend"], delivery_id=dispatch["delivery_id"], run=run_id)
    await _settle(context, dispatch, state="sent", run_id=run_id, dispatched_at=began_at)


async def _find_arrival(context: Context, dispatch: DispatchRow, entry: Entry) -> Arrival | None:
    """Return whether an attempt whose answer was lost arrived: reports show it, or a run that only it can be."""
    since = dispatch["dispatched_at"]
    if since is None:
        return None  # no attempt yet
    async with context.store.read() as tx:
        if await jobs.reported(tx, dispatch["id"]):
            return Arrival(run_id=None)
        others = await dispatches.others_since(tx, dispatch, since - MOST_DELAY)
        if others or await pings.count_since(tx, dispatch["backend"], since - MOST_DELAY):
            return None  # a run could be theirs, or that of a ping
    client = context.backend_github.client(dispatch["backend"], actions="read")
    query = {"event": f"{entry.dispatch}_dispatch", "created": f">={iso_time(since // 1000 * 1000)}"}
    try:
        app = await context.backend_github.as_app().getitem("/app")
        listed = await client.getitem(client.path("actions/runs{?event,created}"), query)
    except GitHubRefused:
        return None
    runs = [
        str(run["id"]) for run in listed["workflow_runs"] if _could_be_ours(run, dispatch, entry, app["slug"])
    ]
    async with context.store.read() as tx:
        taken = await dispatches.runs_of_others(tx, dispatch, runs)
    runs = [run for run in runs if run not in taken]
    if entry.dispatch == "workflow":  # reports have to be about this very run, so it must be certain
        return Arrival(run_id=runs[0]) if len(runs) == 1 else None
    return Arrival(run_id=None) if runs else None


def _could_be_ours(run: dict[str, Any], dispatch: DispatchRow, entry: Entry, slug: str) -> bool:
    """Whether our App started a run of the entry's workflow, or one that GitHub titled after the dispatch."""
    if (run.get("actor") or {}).get("login", "").casefold() != f"{slug}[bot]".casefold():
        return False
    if entry.dispatch == "repository":
        return bool(run["display_title"] == dispatch["event_type"])
    file: str = run["path"].partition("@")[0].rpartition("/")[2]
    return file == entry.workflow_file


async def read_pinned(client: Client, entry: Entry) -> dict[str, Any]:
    """Return the repository, where it is needed; raises GiveUp when it is not the one the allowlist pins."""
    if entry.dispatch != "workflow" and entry.repository_id is None:
        return {}
    repository: dict[str, Any] = await client.repository()
    if entry.repository_id not in {None, repository["id"]}:
        raise GiveUp(
            f"{entry.repo} is repository {repository['id']} now: "
            f"the allowlist pins repository_id {entry.repository_id}"
        )
    return repository


async def _payload(tx: Transaction, context: Context, dispatch: DispatchRow, entry: Entry) -> dict[str, Any]:
    source = await inbox.find(tx, dispatch["source_guid"])
    if source is None:
        raise GiveUp(f"the delivery {dispatch['source_guid']} to be dispatched is not stored any more")
    payload = decode(source["body"])
    # a delivery of our own making: GitHub's never have this source
    further = {"bisect": payload.pop("bisect")} if source["source"] == BISECT else {}
    if dispatch["action"] == "closed" and dispatch["delivery_id"] != dispatch["source_guid"]:
        # the commit at which it was closed is held back
        if (closed := await inbox.find(tx, dispatch["delivery_id"])) is None:
            raise GiveUp(f"the delivery {dispatch['delivery_id']} is not stored any more")
        payload = closing(payload, decode(closed["body"]))
    return client_payload(
        event_type=dispatch["event_type"],
        delivery_id=dispatch["delivery_id"],
        payload=payload,
        callback_url=f"{context.settings.url}/api/oot/callback",
        callback_token=callback_token.make(dispatch, await secrets.key(tx, "callback")),
        as_input=entry.dispatch == "workflow",
        further=further,
    )


async def post_dispatch(
    client: Client, entry: Entry, event_type: str, payload: dict[str, Any], repository: dict[str, Any]
) -> str | None:
    """Make the call; returns the id of the run it started, where GitHub returns it."""
    if entry.dispatch == "repository":
        body = {"event_type": event_type, "client_payload": payload}
        await client.post(client.path("dispatches"), data=body)
        return None
    branch = repository["default_branch"]
    request = {"ref": branch, "inputs": inputs(payload)}
    if not client.lacks(RUN_DETAILS):  # a server refuses what it does not know
        request["return_run_details"] = True
    url = client.path("actions/workflows/{file}/dispatches")
    try:
        answer = await client.post(url, {"file": entry.workflow_file}, data=request)
    except GitHubRefused as error:
        if error.gone:
            raise GiveUp(f"there is no workflow {entry.workflow_file} on {branch}") from error
        raise
    return str(answer["workflow_run_id"]) if isinstance(answer, dict) else None


async def _settle(
    context: Context, dispatch: DispatchRow, *, state: str, error: str | None = None, **columns: Any
) -> None:
    """Record the outcome of a dispatch and have the pull request updated.

    Waits for a database that is briefly unavailable: an outcome that is lost means sending a second time.
    """
    if error:
        log.warning("not dispatched", backend=dispatch["backend"], state=state, reason=error)
    outcome = partial(_store, dispatch, state, error, columns)
    if await retry_until_stored(context.clock, partial(context.store.write, outcome)):
        log.warning("dispatched although it was superseded meanwhile", backend=dispatch["backend"])


async def _store(
    dispatch: DispatchRow, state: str, error: str | None, columns: dict[str, Any], tx: Transaction
) -> bool:
    """Store an outcome; returns whether it was sent although it was superseded: its reports count, so that shows."""
    settled = await dispatches.settle(tx, dispatch["id"], state=state, error=error, **columns)
    now = None if settled else await dispatches.get_dispatch(tx, dispatch["id"])
    late = now is not None and state == "sent" != now["state"]
    if late:
        await dispatches.change(tx, dispatch["id"], error=SENT_LATE, **columns)
    request_publish(tx, dispatch["upstream_repo"], dispatch["pr_number"])
    return late
