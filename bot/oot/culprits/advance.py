"""The task `bisect`: one search goes on (key: its id), from what is known now and within its limits."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from bot.core import text
from bot.core.json_fields import iso_time
from bot.jobs import branch_history
from bot.oot.allowlist import versions as allowlists
from bot.oot.culprits import finish, job_runs, rows, scan, start
from bot.oot.culprits.search import End, SearchTerms, SeenCommit, next_steps
from bot.oot.culprits.signals import signal_of
from bot.oot.culprits.start import LEAST_LEVEL, SEARCH_KIND, terms_of
from bot.oot.culprits.steps import record_steps, settle_steps
from bot.oot.statistics import daily_sums, stats
from bot.oot.statistics.stats import DAY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.jobs.branch_reads import Branch
    from bot.jobs.tables import CommitRow
    from bot.oot.allowlist.entry import Entry
    from bot.oot.culprits.job_runs import SignalRun
    from bot.oot.culprits.search import Decision
    from bot.oot.culprits.steps import WaitingSteps
    from bot.oot.culprits.tables import BisectRow, Signal, StepRow
    from bot.oot.statistics.stats import BackendStats
    from bot.queue.tasks import Task

VAIN = frozenset({"no_result", "silent"})  # outcomes of steps
UPSTREAM = "upstream"
TIMES_DAYS = 14  # of the backend's times
PATIENCE = 600  # seconds that a pull request waits before a search yields, where no time is known
YIELDING_FOR = 120_000  # milliseconds, while it yields
log = structlog.get_logger("bot.oot.culprits.advance")

LOOK_AGAIN = 600.0  # seconds, where nothing says that something has happened
SOON = 5.0
HOUR = 3_600_000  # milliseconds


@dataclass(frozen=True, kw_only=True)
class SearchLimit:
    """How many steps may be sent now; if none, why and until when (epoch milliseconds)."""

    allowed: int | None = None  # None: all
    why: str = ""
    until: int | None = None


NO_LIMIT = SearchLimit()


def observe(
    commits: Sequence[CommitRow], runs: Iterable[SignalRun], steps: Iterable[StepRow]
) -> list[SeenCommit]:
    """Sum up what is known of some commits, oldest first."""
    by_commit: defaultdict[str, list[SignalRun]] = defaultdict(list)
    for run in runs:
        by_commit[run.sha].append(run)
    stepped: defaultdict[str, list[StepRow]] = defaultdict(list)
    for step in steps:
        stepped[step["sha"]].append(step)
    return [_seen(row["sha"], by_commit[row["sha"]], stepped[row["sha"]]) for row in commits]


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A search with its commits, oldest first, and what ran on them."""

    search: BisectRow
    entry: Entry | None  # None: upstream's own CI
    branch: Branch
    signal: Signal
    commits: Sequence[CommitRow]
    runs: Sequence[SignalRun]
    steps: list[StepRow]
    terms: SearchTerms
    seen: Sequence[SeenCommit]

    @property
    def label(self) -> str:
        """The name of the backend or CI that is run."""
        return self.entry.label if self.entry else self.search["backend"] or UPSTREAM

    def observed(self, seen: Sequence[SeenCommit]) -> Situation:
        """Return the situation with other knowledge of its commits."""
        return replace(self, seen=seen)

    def job_timeout(self, settings: Settings) -> int:
        """Return how long a step may go unanswered, in milliseconds."""
        return ((self.entry and self.entry.job_timeout) or settings.job_timeout) * 1000

    def between(self, decision: Decision) -> str:
        """Say where the culprit lies, as far as that is known."""
        good = 0 if decision.good is None else decision.good
        bad = len(self.commits) - 1 if decision.bad is None else decision.bad
        return finish.describe_between(self.commits[good]["sha"], self.commits[bad]["sha"], bad - good)

    def progress(self, decision: Decision) -> str:
        """Say how far the search is."""
        return self.between(decision)


async def find_limit(tx: Transaction, entry: Entry | None, search: BisectRow) -> SearchLimit:
    """Return what holds a search back now."""
    per_day = terms_of(entry).per_day
    label = entry.label if entry else "upstream"
    sent = await rows.sent_on_day(tx, search["backend"], tx.now - DAY)
    if len(sent) >= per_day:
        until = sent[-per_day] + DAY
        words = f"the {text.plural(per_day, 'run')} a day for searches in {label} are used up"
        return SearchLimit(allowed=0, why=f"{words}: it goes on at {iso_time(until)}", until=until)
    if entry is not None and (waits := await _longest_wait(tx, entry)):
        words = f"a pull request has waited for {label} for {text.duration(waits)}"
        return SearchLimit(allowed=0, why=f"{words}: pull requests go first", until=tx.now + YIELDING_FOR)
    return SearchLimit(allowed=per_day - len(sent))


async def read_times(tx: Transaction, backend: str) -> BackendStats:
    """Return how long a backend's runs wait and take, by its newest days."""
    last = tx.now // DAY
    days = await daily_sums.read_days(tx, last - TIMES_DAYS + 1, last=last, backends={backend.casefold()})
    return stats.measure_backend(stats.add_tallies(day.tally for day in days))


async def advance_search(context: Context, task: Task) -> None:
    """Record the outcome of steps, then the next steps or the verdict."""
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


async def read_situation(
    tx: Transaction, settings: Settings, search: BisectRow, entry: Entry | None
) -> Situation | None:
    """Read what is known of a search; None where its ends are no longer on its branch."""
    branch = await branch_history.find_branch_of(tx, search["upstream_repo"], search["branch"])
    commits = (
        await start.read_range(tx, branch, good=search["good_sha"], bad=search["bad_sha"]) if branch else None
    )
    if branch is None or commits is None:
        return None
    signal = signal_of(search)
    known = job_runs.KnownFailure(signature=search["bad_signature"], kind=search["bad_kind"])
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
        terms=SearchTerms(parallel=terms_of(entry).parallel, flaky_rate=search["flaky_rate"]),
        seen=observe(commits, runs, steps),
    )


def _seen(sha: str, runs: Sequence[SignalRun], steps: Sequence[StepRow]) -> SeenCommit:
    mine = {step["dispatch_id"] for step in steps if step["dispatch_id"]}
    good = sum(run.word == "good" for run in runs)
    bad = sum(run.word == "bad" for run in runs)
    return SeenCommit(
        sha=sha,
        good=good,
        bad=bad,
        asked=any(step["outcome"] is None for step in steps),
        pending=any(run.word == "pending" and run.dispatch_id not in mine for run in runs),
        vain=sum(step["outcome"] in VAIN for step in steps),
        silent=sum(step["outcome"] == "silent" for step in steps),
        unbuildable=not good and not bad and any(run.word == "unbuildable" for run in runs),
    )


async def _longest_wait(tx: Transaction, entry: Entry) -> float | None:
    """Return how many seconds a pull request has waited for a backend, if that is longer than nine in ten wait."""
    waiting = await job_runs.queued_pulls(tx, entry.repo)
    if not waiting:
        return None
    usual = (await read_times(tx, entry.repo)).p90_queue_time
    longest = (tx.now - min(waiting)) / 1000
    return longest if longest > (PATIENCE if usual is None else usual) else None


async def _advance(tx: Transaction, settings: Settings, search: BisectRow) -> None:
    entry, problem = await _entry(tx, search)
    if problem:
        await rows.end_search(tx, search["id"], state="gave_up", why=problem)
        return
    for _ in range(finish.MOVES_MOST + 2):
        situation = await read_situation(tx, settings, search, entry)
        if situation is None:
            why = scan.describe_force_pushed(search, await scan.find_gone(tx, search))
            await rows.end_search(tx, search["id"], state="gave_up", why=why)
            return
        waiting = await settle_steps(
            tx,
            situation.branch,
            situation.signal,
            situation.steps,
            situation.runs,
            job_timeout=situation.job_timeout(settings),
        )
        situation = situation.observed(observe(situation.commits, situation.runs, situation.steps))
        decision = next_steps(situation.seen, situation.terms)
        if decision.end is End.GOOD_IS_BAD and await finish.look_before(tx, settings, situation):
            search = await rows.get_search(tx, search["id"]) or search
            continue
        await _act(tx, settings, situation, decision, waiting)
        return


async def _entry(tx: Transaction, search: BisectRow) -> tuple[Entry | None, str]:
    """Return the backend's current entry, or why the search cannot go on."""
    if not search["backend"]:
        return None, ""
    listed = await allowlists.read_in_force(tx)
    entry = listed.find(search["backend"]) if listed else None
    if entry is None:
        return None, f"{search['backend']} is not on the allowlist any more"
    if entry.level < LEAST_LEVEL:
        return entry, f"{entry.label} is at L1 now: nothing comes back from it"
    if entry.bisect.mode == "off":
        return entry, f"searches are off for {entry.label} now"
    return entry, ""


async def _act(
    tx: Transaction, settings: Settings, situation: Situation, decision: Decision, waiting: WaitingSteps
) -> None:
    search = situation.search
    if decision.end is End.FOUND:
        await finish.finish_found(tx, situation, decision)
        return
    if decision.end is not None:
        state, why = finish.describe_end(situation, decision)
        await rows.end_search(tx, search["id"], state=state, why=why)
        return
    if refused := next((step for step in situation.steps if step["outcome"] == "refused"), None):
        why = f"{situation.label} could not be run: {refused['detail']}"
        await rows.end_search(tx, search["id"], state="gave_up", why=why)
        return
    hours = terms_of(situation.entry).max_hours
    if tx.now - search["created_at"] >= hours * HOUR:
        why = f"not found within {text.duration(hours * 3600)}: {situation.between(decision)}"
        await rows.end_search(tx, search["id"], state="gave_up", why=why)
        return
    await _send(tx, settings, situation, decision, waiting)


async def _send(
    tx: Transaction, settings: Settings, situation: Situation, decision: Decision, waiting: WaitingSteps
) -> None:
    """Record the steps that may be sent now, or when the search goes on if none may."""
    search, limit = situation.search, NO_LIMIT
    if decision.steps:
        limit = await find_limit(tx, situation.entry, search)
    allowed = decision.steps[: limit.allowed] if limit.allowed is not None else decision.steps
    made = await record_steps(tx, settings, situation, allowed)
    held_back = bool(decision.steps) and not made and not waiting.steps
    why = limit.why if held_back else ""
    await rows.change_search(
        tx,
        search["id"],
        state="waiting" if held_back else "running",
        why=why or situation.progress(decision),
        waits_until=limit.until if held_back else None,
        used=search["used"] + len(made),
    )
    until = limit.until if held_back else waiting.until
    delay = LOOK_AGAIN if until is None else min(LOOK_AGAIN * 6, max(SOON, (until - tx.now) / 1000 + 1))
    tx.enqueue(SEARCH_KIND, search["id"], delay=delay)
