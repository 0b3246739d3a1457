"""The task `publish`: makes a pull request's check runs what they should be (key: `owner/repo#number`)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from bot.core import metrics
from bot.core.errors import GitHubRefused, GiveUp, OverBudget, RetryLater
from bot.ingest import record_store
from bot.ingest.repositories import canonical_name
from bot.oot.dispatch.redispatch import redispatch_account
from bot.oot.publish import check_text, comment, desired_checks, gates, merge_queue, pull_reads, rows
from bot.oot.publish.check import CheckTerms, write_check
from bot.oot.results import task_keys
from bot.oot.results.task_keys import request_publish
from bot.oot.verdict import pull_state, verdict
from bot.oot.verdict.comparison import store_compared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.publish.check import CheckPlan, CheckWrite
    from bot.oot.publish.tables import CheckRow
    from bot.oot.verdict.pull_state import PullHead, PullState
    from bot.oot.verdict.verdict import Facts
    from bot.oot.verdict.view import Backend
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.publish.publish")

CONFIRM_AFTER = 5.0  # seconds until GitHub is asked about a run it has sent no event of
QUIET_AGAIN = 61.0  # seconds until a backend that cannot be confirmed can have been quiet for long enough
AT_ONCE = 20  # of all open pull requests: how many are published now
APART = 0.1  # seconds between the others
GATHERED = 30  # times as long as it took to judge a pull request, reports gather before the next time
LONGEST_PAUSE = 2.0  # seconds
SHORTEST = 0.001  # seconds until the next run


async def publish_pull(context: Context, task: Task) -> float:
    """Write the check runs of a pull request, then request its comment.

    Returns how long to let reports gather before the next run.
    """
    began = time.perf_counter()
    repo, number = task_keys.parse_pull(task)
    state = await pull_reads.read_state(context, repo, number)
    if not context.settings.is_upstream(repo) or not state.heads:
        return 0.0
    if await pull_reads.read_merge_base(context, state):
        state = await pull_reads.read_state(context, repo, number)
    await merge_queue.read_queue_bases(context, state)
    files = await pull_reads.read_changed_files(context, state)
    async with context.store.read() as tx:
        present = await rows.checks_of(tx, state.repo, state.number)
        heads = _maintained(state, present)
        plan = await _plan(tx, context.settings, state, heads=heads, present=present, files=files)
        others = await gates.dependent_pulls(
            tx, state, plan, check_text.gate_name(context.settings.check_prefix)
        )
    pause = min((time.perf_counter() - began) * GATHERED, LONGEST_PAUSE)
    # before the writes: after a crash in between, the next run would no longer find a difference to announce
    if others:
        async with context.store.transaction() as tx:
            for other in sorted(others):
                request_publish(tx, repo, other)
    metrics.WRITES_SAVED.inc(plan.unchanged)
    now = context.clock.now()
    wait, refusals = await _write_all(context, state, plan, now)
    async with context.store.transaction() as tx:
        _schedule(tx, task.key, plan, wait, now)
        _schedule_confirmation(tx, task.key, heads)
        await store_compared(tx, state.compared)
        await comment.request_comment(tx, context.settings, state)
    if wait and wait.after is None:
        raise wait
    if refusals:
        raise GiveUp("; ".join(refusals))
    return pause


async def publish_account(context: Context, task: Task) -> None:
    """Redispatch what an account's repositories could not receive, and publish its own open pull requests."""
    async with context.store.transaction() as tx:
        await rows.allow_comments(tx, account=task.key)
        again = await redispatch_account(tx, task.key)
        await request_all_open(tx, context.settings, account=task.key)
    log.info("installed", account=task.key, dispatched_afresh=again)


async def publish_open_pulls(context: Context, _task: Task) -> None:
    """Publish every open pull request."""
    async with context.store.transaction() as tx:
        await request_all_open(tx, context.settings)


async def request_all_open(tx: Transaction, settings: Settings, *, account: str | None = None) -> None:
    """Enqueue publishing of every open pull request of upstream, or of one account, dispatched or not.

    The newest run at once, the others one by one: a thousand at a time would hold up everything else.
    """
    mine = [
        (canonical_name(settings, repo), number)
        for repo, number in await record_store.read_open_pulls(tx)
        if account is None or repo.partition("/")[0].casefold() == account.casefold()
        if settings.is_upstream(repo)
    ]
    newest_first = sorted(mine, key=lambda pull: -pull[1])
    for place, (repo, number) in enumerate(newest_first):
        request_publish(tx, repo, number, delay=max(place - AT_ONCE + 1, 0) * APART)


def _schedule(tx: Transaction, key: str, plan: CheckPlan, wait: RetryLater | None, now: int) -> None:
    """Enqueue the next run for when the first of the remaining writes is due."""
    later = [(write.not_before - now) / 1000 for write in plan.writes if write.not_before > now]
    if wait and wait.after is not None:  # not raised: a task that waits already may be due before
        log.info("some checks have to wait", reason=str(wait), after=wait.after)
        later.append(wait.after)
    if later:
        tx.enqueue("publish", key, delay=max(min(later), SHORTEST))


def _schedule_confirmation(tx: Transaction, key: str, heads: Sequence[PullHead]) -> None:
    """Enqueue what verdicts wait for: GitHub's status of runs, or a minute without news where it has none."""
    if _any_unconfirmable(heads):
        tx.enqueue("publish", key, delay=QUIET_AGAIN)
    for run_key in _unconfirmed_runs(heads):
        tx.enqueue("confirm", run_key, delay=CONFIRM_AFTER)


async def _write_all(
    context: Context, state: PullState, plan: CheckPlan, now: int
) -> tuple[RetryLater | None, list[str]]:
    """Write what is due; returns why some of it has to wait, and what GitHub refused for good."""
    refusals: list[str] = []
    wait: RetryLater | None = None
    # kinds over the budget: trying each of a thousand writes takes seconds
    full: set[tuple[bool, bool]] = set()
    for write in plan.writes:
        kind = write.urgent, write.check_run_id is None
        if write.not_before > now or kind in full:
            continue
        try:
            await write_check(context, state, write)
        except GitHubRefused as error:
            log.warning("check run refused", name=write.check.name, reason=str(error))
            refusals.append(f"{write.check.name}: {error}")
        except RetryLater as error:
            if error.after is None:  # GitHub is down or out of reach: the others would fail too
                return error, refusals
            if isinstance(error, OverBudget):
                full.add(kind)
            if wait is None or wait.after is None or error.after < wait.after:
                wait = error
    return wait, refusals


def _maintained(state: PullState, present: Sequence[CheckRow]) -> list[PullHead]:
    """Return the newest heads, and older ones that have an unfinished check run."""
    unfinished = {row["head_sha"] for row in present if row["status"] != "completed"}
    newest, rest = state.heads[: pull_state.MOST_HEADS], state.heads[pull_state.MOST_HEADS :]
    return [*newest, *(head for head in rest if head.judged and head.view.head_sha in unfinished)]


async def _plan(
    tx: Transaction,
    settings: Settings,
    state: PullState,
    *,
    heads: Sequence[PullHead],
    present: Sequence[CheckRow],
    files: frozenset[str],
) -> CheckPlan:
    """Return all writes: gates and verdicts, then the rest, and new wording of a gate last."""
    gate_name = check_text.gate_name(settings.check_prefix)
    terms = CheckTerms(
        prefix=settings.check_prefix,
        names=settings.check_names,
        label_prefixes=settings.label_prefixes,
        labels=state.labels,
        gate=await rows.gate_exists(tx, state.repo, gate_name),
        interval=settings.publish_interval * 1000,
        demoted=frozenset(await rows.read_demoting_pulls(tx, state.repo)),
    )
    plan = await gates.plan_gates(tx, settings, state, heads, terms)
    for head in heads:
        on_head = [row for row in present if row["head_sha"] == head.view.head_sha]
        dispatches = {key: facts.dispatch for key, facts in head.facts.items()}
        current = head is state.current
        marks = head.view.tests.marks if head.view.tests and current else ()
        here = replace(terms, current=current, files=files if current else frozenset(), marks=marks)
        plan += desired_checks.plan_backend_checks(head.view, dispatches, head.entries, on_head, here)

    def order(write: CheckWrite) -> tuple[bool, bool]:
        return not write.urgent, not write.urgent and write.check.name == gate_name

    return replace(plan, writes=tuple(sorted(plan.writes, key=order)))


def _unconfirmed_runs(heads: Sequence[PullHead]) -> list[str]:
    """Return the keys of `confirm` for runs whose verdict waits for GitHub, which has sent nothing about them."""
    keys = []
    for facts, backend, confirmed in _undecided(heads):
        green = backend.state == "confirming"
        runs = facts.expected if green else verdict.unjudged_reruns(facts)
        unknown = [item for item in runs.items() if confirmed and item not in facts.run_statuses]
        keys += [task_keys.run_key(backend.repo, run_id, attempt) for run_id, attempt in unknown]
    return keys


def _any_unconfirmable(heads: Sequence[PullHead]) -> bool:
    """Whether any verdict on a backend that GitHub cannot confirm waits for a minute without news."""
    return any(
        not confirmed and (backend.state == "confirming" or verdict.unjudged_reruns(facts))
        for facts, backend, confirmed in _undecided(heads)
    )


def _undecided(heads: Sequence[PullHead]) -> Iterator[tuple[Facts, Backend, bool]]:
    """Yield the dispatched backends without a verdict, and whether each needs GitHub's confirmation."""
    for head in heads:
        for backend in head.view.backends:
            key = backend.repo.casefold()
            if key in head.facts and not backend.state.finished:
                entry = head.entries.get(key)
                yield head.facts[key], backend, entry is None or entry.confirm
