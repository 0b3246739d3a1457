"""The task `bisect`: one search goes on (key: its id), from what is known now.

All of it is one transaction without a call: outcomes, the next steps and what sends them are recorded together, or not
at all. It may run at any time, and as often as anything happens that could matter to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.ci.trunk import branch_history
from bot.core import text
from bot.oot.allowlist import rows as allowlists
from bot.oot.culprits import conclude, ends, job_runs, limits, outcomes, record_steps, rewritten, rows
from bot.oot.culprits.observed import observe
from bot.oot.culprits.search import End, Terms, next_steps
from bot.oot.culprits.signals import signal_of
from bot.oot.culprits.situation import Situation
from bot.oot.culprits.start import KIND, LEAST_LEVEL, terms_of

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.culprits.outcomes import Waiting
    from bot.oot.culprits.search import Decision
    from bot.oot.culprits.tables import BisectRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.culprits.advance")

LOOK_AGAIN = 600.0  # seconds, where nothing says that something has happened
SOON = 5.0
HOUR = 3_600_000  # milliseconds


async def advance_search(context: Context, task: Task) -> None:
    """Record what became of steps, then the next ones or the verdict."""
    async with context.store.transaction() as tx:
        search = await rows.get_search(tx, task.key, held=True)
        if search is None or search["ended_at"] is not None:
            return
        tx.cause = f"bisect {search['id']}"
        await _advance(tx, context.settings, search)
        now = await rows.get_search(tx, task.key)
    if now and now["ended_at"] is not None:
        log.info(
            "search over", search=now["id"], repo=now["upstream_repo"], state=now["state"], why=now["why"]
        )


async def _advance(tx: Transaction, settings: Settings, search: BisectRow) -> None:
    entry, problem = await _entry(tx, search)
    if problem:
        await rows.end_search(tx, search["id"], state="gave_up", why=problem)
        return
    for _ in range(conclude.MOVES_MOST + 2):
        found = await read_situation(tx, settings, search, entry)
        if found is None:
            why = rewritten.describe_rewritten(search, await rewritten.find_gone(tx, search))
            await rows.end_search(tx, search["id"], state="gave_up", why=why)
            return
        waiting = await outcomes.settle_steps(
            tx, found.branch, found.signal, found.steps, found.runs, job_timeout=found.job_timeout(settings)
        )
        found = found.observed(observe(found.commits, found.runs, found.steps))
        decision = next_steps(found.seen, found.terms)
        if decision.end is End.GOOD_IS_BAD and await conclude.look_before(tx, settings, found):
            search = await rows.get_search(tx, search["id"]) or search
            continue
        await _act(tx, settings, found, decision, waiting)
        return


async def read_situation(
    tx: Transaction, settings: Settings, search: BisectRow, entry: Entry | None
) -> Situation | None:
    """Return what is known of a search now; None where its ends are no longer on its branch."""
    branch = await branch_history.find_branch(tx, search["upstream_repo"], search["branch"])
    commits = (
        await ends.read_range(tx, branch, good=search["good_sha"], bad=search["bad_sha"]) if branch else None
    )
    if branch is None or commits is None:
        return None
    signal = signal_of(search)
    known = job_runs.Known(signature=search["bad_signature"], kind=search["bad_kind"])
    shas = [row["sha"] for row in commits]
    runs = await job_runs.read_job_runs(tx, settings, branch, signal, shas, known=known)
    steps = await rows.steps_of(tx, search["id"])
    return Situation(
        search=search,
        entry=entry,
        branch=branch,
        signal=signal,
        commits=commits,
        runs=runs,
        steps=steps,
        terms=Terms(parallel=terms_of(entry).parallel, flaky_rate=search["flaky_rate"]),
        seen=observe(commits, runs, steps),
    )


async def _entry(tx: Transaction, search: BisectRow) -> tuple[Entry | None, str]:
    """Return the backend's entry as it is now, or why the search cannot go on."""
    if not search["backend"]:
        return None, ""
    listed = await allowlists.in_force(tx)
    entry = listed.find(search["backend"]) if listed else None
    if entry is None:
        return None, f"{search['backend']} is not on the allowlist any more"
    if entry.level < LEAST_LEVEL:
        return entry, f"{entry.label} is at L1 now: nothing comes back from it"
    if entry.bisect.mode == "off":
        return entry, f"searches are off for {entry.label} now"
    return entry, ""


async def _act(
    tx: Transaction, settings: Settings, found: Situation, decision: Decision, waiting: Waiting
) -> None:
    search = found.search
    if decision.end is End.FOUND:
        await conclude.conclude_found(tx, found, decision)
        return
    if decision.end is not None:
        state, why = conclude.describe_end(found, decision)
        await rows.end_search(tx, search["id"], state=state, why=why)
        return
    if refused := next((step for step in found.steps if step["outcome"] == "refused"), None):
        why = f"{found.label} could not be run: {refused['detail']}"
        await rows.end_search(tx, search["id"], state="gave_up", why=why)
        return
    hours = terms_of(found.entry).max_hours
    if tx.now - search["created_at"] >= hours * HOUR:
        why = f"not found within {text.duration(hours * 3600)}: {found.between(decision)}"
        await rows.end_search(tx, search["id"], state="gave_up", why=why)
        return
    await _send(tx, settings, found, decision, waiting)


async def _send(
    tx: Transaction, settings: Settings, found: Situation, decision: Decision, waiting: Waiting
) -> None:
    """Record the steps that may be sent now; where none may, when the search goes on."""
    search, limit = found.search, limits.NOTHING
    if decision.steps:
        limit = await limits.find_limit(tx, found.entry, search)
    allowed = decision.steps[: limit.allowed] if limit.allowed is not None else decision.steps
    made = await record_steps.record_steps(tx, settings, found, allowed)
    held_back = bool(decision.steps) and not made and not waiting.steps
    why = limit.why if held_back else ""
    await rows.change_search(
        tx,
        search["id"],
        state="waiting" if held_back else "running",
        why=why or found.progress(decision),
        waits_until=limit.until if held_back else None,
        used=search["used"] + len(made),
    )
    until = limit.until if held_back else waiting.until
    delay = LOOK_AGAIN if until is None else min(LOOK_AGAIN * 6, max(SOON, (until - tx.now) / 1000 + 1))
    tx.enqueue(KIND, search["id"], delay=delay)
