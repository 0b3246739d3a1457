"""sweep: what stayed silent past its time is concluded, visibly: jobs timed out, dispatches and re-runs not started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.domain import lifecycle
from bot.domain.words import duration
from bot.store import allowlists, dispatches, jobs, queue, report_rates, reruns
from bot.store.limits import Limits

if TYPE_CHECKING:
    from bot.context import Context
    from bot.domain.allowlist import Allowlist
    from bot.store import Transaction
    from bot.store.queue import Task

Row = dict[str, Any]
TRYING = 2  # tasks that try whether GitHub is back, each time


async def run(context: Context, _task: Task) -> None:
    """Conclude every silent job, dispatch and re-run, a page of each in a transaction.

    While GitHub is away, somebody tries whether it is back: one success lets all the others run.
    """
    async with context.store.transaction() as tx:
        await queue.hasten(tx, most=TRYING)
    more = True
    while more:
        async with context.store.transaction() as tx:
            allowlist = await allowlists.in_force(tx)
            start = _limits(allowlist, "start_timeout", context.settings.start_timeout)
            more = await _jobs(tx, _limits(allowlist, "job_timeout", context.settings.job_timeout))
            more |= await _dispatches(tx, start)
            more |= await _reruns(tx, start)
            await report_rates.forget(tx)


async def _jobs(tx: Transaction, limits: Limits) -> bool:
    """Time out a page of jobs; returns whether there may be more."""
    silent = await jobs.silent(tx, limits)
    for job in jobs.in_order(silent):
        moved = await jobs.move(tx, job, lifecycle.swept(job, now=tx.now))
        if moved and job["dispatch_id"]:  # else an outside relay says what it is about
            _publish(tx, job)
    return len(silent) == jobs.PAGE


async def _dispatches(tx: Transaction, limits: Limits) -> bool:
    silent = await dispatches.silent(tx, limits)
    for dispatch in silent:
        reason = f"no report within {duration(limits.of(dispatch['backend']) / 1000)}"
        if await dispatches.never_started(tx, dispatch["id"], reason):
            _publish(tx, dispatch)
    for identifier in await dispatches.unsent(tx, limits):
        tx.enqueue("dispatch", identifier)  # to fail for good; its own task may be gone
    return len(silent) == dispatches.PAGE


async def _reruns(tx: Transaction, limits: Limits) -> bool:
    await reruns.note_begun(tx)
    silent = await reruns.silent(tx, limits)
    for rerun in silent:
        await reruns.settle(tx, rerun, "never_started")
        _publish(tx, rerun)
    return len(silent) == reruns.PAGE


def _publish(tx: Transaction, row: Row) -> None:
    tx.publish(row["upstream_repo"], row["pr_number"])


def _limits(allowlist: Allowlist | None, name: str, default: int) -> Limits:
    entries = allowlist.entries if allowlist else ()
    own = {entry.key: seconds * 1000 for entry in entries if (seconds := getattr(entry, name))}
    return Limits(default=default * 1000, own=own)
