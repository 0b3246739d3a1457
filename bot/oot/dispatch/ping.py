"""Pings: test dispatches that show whether dispatch, token and callback of a backend work."""

from __future__ import annotations

import secrets as random
import uuid
from typing import TYPE_CHECKING, Any

import structlog

from bot.core.errors import GitHubRefused, GiveUp, NotInstalled
from bot.db import installation
from bot.db.store import LOCK_TIMEOUT
from bot.ingest.retention import delete_rows
from bot.oot.allowlist import versions as allowlists
from bot.oot.dispatch.send_dispatch import client_payload, describe_refusal, post_dispatch, read_repository
from bot.oot.reports import authorization, rows
from bot.oot.reports.acceptance import PING_PREFIX, ping_as_dispatch
from bot.oot.reports.rows import oot_ping
from bot.web.access import CONTEXT
from bot.web.blocks import ADMINISTRATOR, FormDone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.entry import Entry
    from bot.oot.reports.rows import PingRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.dispatch.ping")

EVENT = "ping"  # what the backend's workflow listens for
HOUR, KEPT = 3_600_000, 30 * 86_400_000  # milliseconds
MOST_AN_HOUR = 20  # of one backend
IN_TIME = 600_000  # milliseconds in which GitHub has to take it


def ping_path(row: PingRow) -> str:
    """Return the page of a ping."""
    return f"/oot/{row['backend']}/pings/{row['id']}"


async def request_ping(tx: Transaction, entry: Entry, *, by: str, cause: str) -> PingRow | None:
    """Request a ping of a backend; returns None if there were too many lately. A cause makes only one."""
    if await rows.count_pings_since(tx, entry.repo, tx.now - HOUR) >= MOST_AN_HOUR:
        return None
    row: PingRow = {
        "id": f"{PING_PREFIX}{uuid.uuid4()}",
        "backend": entry.repo,
        "backend_key": entry.key,
        "requested_by": by,
        "cause": cause,
        "created_at": tx.now,
        "token_jti": random.token_hex(16),
        "state": "pending",
        "error": None,
        "sent_at": None,
        "run_id": None,
        "started_at": None,
        "completed_at": None,
        "conclusion": None,
        "refused_at": None,
        "refusal": None,
    }
    if await rows.add_ping(tx, row):
        tx.enqueue("ping", row["id"])
    return row


async def request_by_form(request: web.Request, fields: Mapping[str, str]) -> FormDone:
    """Ping a backend for the operator, and show how it goes."""
    name = fields.get("backend", "")
    async with request.app[CONTEXT].store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        allowlist = await allowlists.read_in_force(tx)
        entry = allowlist.find(name) if allowlist else None
        if entry is None:
            return FormDone(words="no backend of that name is on the allowlist")
        row = await request_ping(tx, entry, by=ADMINISTRATOR, cause=f"form {uuid.uuid4()}")
    if row is None:
        return FormDone(
            words=f"{entry.label} was pinged {MOST_AN_HOUR} times in the last hour: wait a little"
        )
    return FormDone(path=ping_path(row))


async def send_ping(context: Context, task: Task) -> None:
    """Send a ping; it is sent again if the answer is lost, which does no harm."""
    async with context.store.read() as tx:
        row = await rows.get_ping(tx, task.key)
        allowlist = await allowlists.read_in_force(tx)
    if row is None or row["state"] != "pending":
        return
    entry = allowlist.find(row["backend"]) if allowlist else None
    settled: dict[str, Any]
    try:
        settled = {"state": "sent", "run_id": await _send(context, row, entry)}
    except NotInstalled as error:
        settled = {"state": "not_installed", "error": error.message}
    except GitHubRefused as error:
        state, reason = describe_refusal(error.status, error.message)
        settled = {"state": state, "error": reason}
    except GiveUp as error:
        settled = {"state": "failed", "error": str(error)}
    async with context.store.transaction() as tx:
        await rows.change_ping(tx, row["id"], **settled)
    log.info("ping", backend=row["backend"], by=row["requested_by"], state=settled["state"])


async def prune_pings(context: Context) -> dict[str, int]:
    """Delete pings that are a month old."""
    return {"pings": await delete_rows(context, oot_ping, rows.pings_older_than(context.clock.now() - KEPT))}


async def _send(context: Context, row: PingRow, entry: Entry | None) -> str | None:
    """Make the call; returns the run it started, where GitHub names it. Raises GiveUp where it cannot be made."""
    if entry is None:
        raise GiveUp("it was taken off the allowlist")
    if context.clock.now() - row["created_at"] > IN_TIME:
        raise GiveUp("GitHub did not take it in time")
    needs = {"actions" if entry.dispatch == "workflow" else "contents": "write"}
    client = context.backend_github.client(entry.repo, since=None, **needs)
    repository = await read_repository(client, entry)
    async with context.store.transaction() as tx:  # before: its report may be faster than GitHub's answer
        await rows.change_ping(tx, row["id"], sent_at=tx.now)
        key = await installation.random_key(tx, "callback")
    payload = client_payload(
        event_type=EVENT,
        delivery_id=row["id"],
        payload={"action": EVENT, "repository": {"full_name": context.settings.upstream_repo[0]}},
        callback_url=f"{context.settings.url}/api/oot/callback",
        callback_token=authorization.make_token(ping_as_dispatch(row), key),
        as_input=entry.dispatch == "workflow",
    )
    return await post_dispatch(client, entry, EVENT, payload, repository)
