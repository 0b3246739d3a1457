"""The task `sweep`: finishes what had no news past its limit, visibly; and deletes what is old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.text import duration
from bot.ingest.retention import delete_rows
from bot.oot.allowlist import versions as allowlists
from bot.oot.dispatch.ping import prune_pings
from bot.oot.dispatch.rows import oot_changed_files, oot_tree
from bot.oot.reports import lifecycle, rows
from bot.oot.results import dispatches, jobs, runs
from bot.oot.results.dispatches import Timeouts
from bot.oot.results.task_keys import request_publish
from bot.queue import tasks

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Allowlist
    from bot.oot.results.tables import DispatchRow, JobRow
    from bot.queue.tasks import Task

PROBES = 2  # tasks that are tried early, each time, while GitHub is unavailable
KEPT = 90 * 86_400_000  # milliseconds: then a head that still stands is run, whatever it changes


async def finish_overdue(context: Context, _task: Task) -> None:
    """Finish every overdue job, dispatch and re-run, a page of each per transaction.

    While GitHub is unavailable, a few waiting tasks probe it: one success releases all the others.
    """
    async with context.store.transaction() as tx:
        await tasks.wake_after_outage(tx, most=PROBES)
    more = True
    while more:
        async with context.store.transaction() as tx:
            allowlist = await allowlists.read_in_force(tx)
            start = _timeouts(allowlist, "start_timeout", context.settings.start_timeout)
            more = await _jobs(tx, _timeouts(allowlist, "job_timeout", context.settings.job_timeout))
            more |= await _dispatches(tx, start)
            more |= await _reruns(tx, start)
            await rows.forget_old_counts(tx)


async def prune_dispatching(context: Context) -> dict[str, int]:
    """Delete old pings, lists of changed files and trees."""
    before = context.clock.now() - KEPT
    files, trees = oot_changed_files.c.asked_at < before, oot_tree.c.asked_at < before
    return {
        **await prune_pings(context),
        "changed_files": await delete_rows(context, oot_changed_files, files),
        "trees": await delete_rows(context, oot_tree, trees),
    }


async def _jobs(tx: Transaction, timeouts: Timeouts) -> bool:
    """Time out a page of jobs; returns whether more may be due."""
    silent = await jobs.read_timed_out(tx, timeouts)
    for job in jobs.in_lock_order(silent):
        moved = await jobs.change_if_unchanged(tx, job, lifecycle.finish_unreported(job, now=tx.now))
        if moved and job["dispatch_id"]:  # an outside relay's jobs never reach the pull request
            _publish(tx, job)
    return len(silent) == jobs.PAGE


async def _dispatches(tx: Transaction, timeouts: Timeouts) -> bool:
    silent = await dispatches.read_timed_out(tx, timeouts)
    for dispatch in silent:
        reason = f"no report within {duration(timeouts.of(dispatch['backend']) / 1000)}"
        if await dispatches.end_unanswered(tx, dispatch["id"], reason):
            _publish(tx, dispatch)
    for identifier in await dispatches.unsent_for_too_long(tx, timeouts):
        tx.enqueue("dispatch", identifier)  # which fails for good now; its own task may be gone
    return len(silent) == dispatches.PAGE


async def _reruns(tx: Transaction, timeouts: Timeouts) -> bool:
    await runs.mark_reruns_begun(tx)
    silent = await runs.read_timed_out_reruns(tx, timeouts)
    known = await dispatches.get_by_id(tx, {rerun["dispatch_id"] for rerun in silent})
    for rerun in silent:
        await runs.settle_rerun(tx, rerun, "never_started")
        _publish(tx, known[rerun["dispatch_id"]])
    return len(silent) == runs.PAGE


def _publish(tx: Transaction, row: JobRow | DispatchRow) -> None:
    request_publish(tx, row["upstream_repo"], row["pr_number"])


def _timeouts(allowlist: Allowlist | None, name: str, default: int) -> Timeouts:
    """Return the timeout of each backend, from its entry's field of this name or the setting, both in seconds."""
    entries = allowlist.entries if allowlist else ()
    own = {entry.key: seconds * 1000 for entry in entries if (seconds := getattr(entry, name))}
    return Timeouts(default=default * 1000, own=own)
