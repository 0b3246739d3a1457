"""The task `bisect_scan`: what nothing else tells of is noticed here, every few minutes.

Jobs that broke where an entry says `bisect: auto`, searches that a lost event left waiting, and culprits that a later
commit reverts or fixes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.ci.trunk import branch_history, broken_columns, reading
from bot.oot.allowlist import rows as allowlists
from bot.oot.culprits import history, mended, rows
from bot.oot.culprits.named_signals import Place
from bot.oot.culprits.refused import Refused
from bot.oot.culprits.start import KIND, LEAST_LEVEL, OURSELVES, Wanted, start_search

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Entry
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.culprits.scan")

REASON = "its entry says `bisect: auto`"


async def scan(context: Context, _task: Task) -> None:
    """Begin searches that are due, wake those under way, and note culprits that were mended."""
    async with context.store.transaction() as tx:
        for identifier in await rows.open_ids(tx):
            tx.enqueue(KIND, identifier)
        listed = await allowlists.in_force(tx)
    automatic = [
        entry
        for entry in (listed.entries if listed else ())
        if entry.bisect.mode == "auto" and entry.level >= LEAST_LEVEL
    ]
    for repo in context.settings.upstream_repo:
        for entry in automatic:
            await _begin_due(context, repo, entry)
        async with context.store.transaction() as tx:
            await mended.note_mended(tx, repo)


async def _begin_due(context: Context, repo: str, entry: Entry) -> None:
    """Begin a search for each broken job of a backend, once for each time that it broke."""
    async with context.store.read() as tx:
        due = await _due(tx, context.settings, repo, entry)
    for job in due:
        wanted = Wanted(repo=repo, backend=entry.repo, what=job, by=OURSELVES, reason=REASON)
        try:
            async with context.store.transaction() as tx:
                started = await start_search(tx, context.settings, wanted)
        except Refused as refusal:
            log.info("no search begun", repo=repo, backend=entry.repo, job=job, reason=str(refusal))
            continue
        if started.is_new:
            log.info("search begun", search=started.row["id"], repo=repo, backend=entry.repo, job=job)


async def _due(tx: Transaction, settings: Settings, repo: str, entry: Entry) -> list[str]:
    found = await branch_history.find_branch(tx, repo, "")
    name = found and found.repository["default_branch"]
    if found is None or not name:
        return []
    branch = reading.Branch(repository=found.repository, names=found.names, name=name)
    commits, _ = await reading.newest_commits(tx, branch, before=None, limit=history.LINES)
    seen = await history.read_history(tx, settings, branch, entry.repo, commits)
    place = Place(branch=branch, backend=entry.repo, label=entry.label)
    due = []
    for job in seen.broken_jobs():
        breakage = broken_columns.breakage(seen.column(job))
        if breakage is None or breakage.last_good is None or len(breakage.suspects) < 2:
            continue  # nothing between, or nothing to begin from
        bad = seen.grid.lines[breakage.first_bad].commit["sha"]
        if await rows.last_of_breakage(tx, place.signal(job), bad) is None:
            due.append(job)
    return due
