"""sweep: what stayed silent past its time is concluded, visibly: jobs timed out, dispatches never started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.domain import lifecycle
from bot.domain.words import duration
from bot.store import allowlists, dispatches, jobs

if TYPE_CHECKING:
    from bot.context import Context
    from bot.domain.allowlist import Allowlist
    from bot.store import Transaction
    from bot.store.queue import Task

Row = dict[str, Any]


async def run(context: Context, _task: Task) -> None:
    """Conclude every silent job and dispatch."""
    async with context.store.transaction() as tx:
        allowlist = await allowlists.in_force(tx)
        await _jobs(tx, allowlist, context.settings.job_timeout)
        await _dispatches(tx, allowlist, context.settings.start_timeout)
        await jobs.forget_rates(tx)


async def _jobs(tx: Transaction, allowlist: Allowlist | None, default: int) -> None:
    shortest = _shortest(allowlist, "job_timeout", default)
    for job in await jobs.silent(tx, before=tx.now - shortest * 1000):
        limit = _limit(allowlist, job["downstream_repo"], "job_timeout", default)
        if job["started_at"] < tx.now - limit * 1000 and await jobs.move(
            tx, job, lifecycle.swept(job, now=tx.now)
        ):
            _publish(tx, job)


async def _dispatches(tx: Transaction, allowlist: Allowlist | None, default: int) -> None:
    shortest = _shortest(allowlist, "start_timeout", default)
    for dispatch in await dispatches.silent(tx, before=tx.now - shortest * 1000):
        limit = _limit(allowlist, dispatch["backend"], "start_timeout", default)
        if dispatch["created_at"] < tx.now - limit * 1000:
            reason = f"no report within {duration(limit)}"
            await dispatches.change(tx, dispatch["id"], state="never_started", error=reason)
            _publish(tx, dispatch)


def _publish(tx: Transaction, row: Row) -> None:
    if row["pr_number"] is not None:
        tx.enqueue("publish", f"{row['upstream_repo']}#{row['pr_number']}")


def _shortest(allowlist: Allowlist | None, name: str, default: int) -> int:
    entries = allowlist.entries if allowlist else ()
    limits: list[int] = [default, *(value for entry in entries if (value := getattr(entry, name)))]
    return min(limits)


def _limit(allowlist: Allowlist | None, backend: str, name: str, default: int) -> int:
    entry = allowlist.find(backend) if allowlist else None
    own: int | None = getattr(entry, name) if entry else None
    return own or default
