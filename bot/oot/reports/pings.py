"""Reports on pings: authorized as any report, and kept with the ping alone, so that no page or number has them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from bot.core.errors import Rejected, StoreUnavailable
from bot.db import secrets
from bot.db.connection_watchdog import REQUEST_TIMEOUT
from bot.db.store import LOCK_TIMEOUT
from bot.oot.allowlist import rows as allowlists
from bot.oot.reports import callback_token
from bot.oot.reports.authorization import check_callback_token, find_entry
from bot.oot.reports.bodies import Accepted
from bot.oot.reports.report import Malformed, parse_report
from bot.oot.reports.store import pings
from bot.web.app_keys import CONTEXT
from bot.web.bodies import SMALL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from bot.context import Context
    from bot.oot.reports.authorization import Submission
    from bot.oot.reports.tables import PingRow

PREFIX = "ping-"
LONGEST = 500  # characters of a reason


def is_ping(delivery_id: str) -> bool:
    """Whether a delivery id is that of a ping: GitHub's are UUIDs, commits are hexadecimal."""
    return delivery_id.startswith(PREFIX)


def as_dispatch(row: PingRow) -> Mapping[str, Any]:
    """Return a ping as what its callback token is made of."""
    return {**row, "delivery_id": row["id"], "pr_number": None, "head_sha": None}


async def accept_report(context: Context, one: Submission) -> Accepted:
    """Note a report on a ping; raises Rejected as for any report."""
    report, claims = one.report, one.claims
    async with context.store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
        entry = find_entry(await allowlists.in_force(tx), context.settings, claims)
        if entry is None:
            return Accepted(status="ignored")
        row = await pings.get_ping(tx, report.delivery_id)
        if row is None or row["backend_key"] != entry.key or row["sent_at"] is None:
            detail = f"ping {report.delivery_id[:100]} was never sent to {entry.repo}"
            raise Rejected(404, "unknown_dispatch", detail)
        key = await secrets.key(tx, "callback")
        check_callback_token(entry, as_dispatch(row), report, key=key, now=tx.now)
        status = report.job["status"]
        if row["completed_at"] is not None or (status == "in_progress" and row["started_at"] is not None):
            return Accepted(status=status, duplicate=True)
        changed: dict[str, Any] = {"run_id": claims.run_id or report.job["run_id"]}
        if status == "completed":
            changed |= {"completed_at": tx.now, "conclusion": report.job["conclusion"]}
        else:
            changed["started_at"] = tx.now
        await pings.change(tx, row["id"], **changed)
    return Accepted(status=status)


async def note_refusal(request: web.Request, refusal: Rejected, body: bytes) -> None:
    """Keep why a report on a ping was refused, to be shown with the ping.

    Its callback token proves that it answers the ping, even where its OpenID token does not say whose it is. A body
    that has not arrived yet is not waited for.
    """
    length = request.content_length
    if not body and length is not None and length <= SMALL and request.content.is_eof():
        body = request.content.read_nowait()
    if f'"{PREFIX}'.encode() not in body:
        return
    with contextlib.suppress(Malformed, StoreUnavailable):
        report = parse_report(body)
        if is_ping(report.delivery_id):
            await _note(request.app[CONTEXT], report.delivery_id, report.callback_token, refusal)


async def _note(context: Context, identifier: str, token: str | None, refusal: Rejected) -> None:
    async with context.store.read(answer_within=REQUEST_TIMEOUT) as tx:
        row = await pings.get_ping(tx, identifier)
        key = await secrets.key(tx, "callback") if row else b""
        now = tx.now
    words = f"{refusal.status} {refusal.code}: {refusal.detail}"[:LONGEST]
    if row is None or row["refusal"] == words:
        return
    if callback_token.belongs(token, as_dispatch(row), key, now=now):
        async with context.store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
            await pings.change(tx, identifier, refused_at=tx.now, refusal=words)
