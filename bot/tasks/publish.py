"""publish: a pull request's check runs are made true again (key: `owner/repo#number`).

Each run compares what should be there with what we wrote last and acts on the difference, gates and verdicts first.
What cannot be written now is written by the next run, as it should be then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from bot import metrics, query, upstream
from bot.domain import desired, naming, run_key, verdict
from bot.domain.writes import Terms
from bot.errors import GitHubRefused, GiveUp, NoRoom, RetryLater
from bot.store import baselines, pulls
from bot.tasks import changed_files, comment, gates, merge_base, subject
from bot.tasks.check import write
from bot.tasks.labels import state_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.context import Context
    from bot.domain.verdict import Facts
    from bot.domain.view import Backend
    from bot.domain.writes import Plan, Write
    from bot.query import Head, PullState
    from bot.settings import Settings
    from bot.store import Transaction
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.publish")

Row = dict[str, Any]
CONFIRM_AFTER = 5.0  # seconds until GitHub is asked about a run that it has said nothing of
QUIET_AGAIN = 61.0  # seconds: a backend nobody can confirm is looked at again once it was quiet long enough
SHORTEST = 0.001  # seconds until another look


async def run(context: Context, task: Task) -> None:
    """Make the check runs of a pull request what they should be, and see that its comment follows."""
    repo, number = subject.pull(task)
    state = await state_of(context, repo, number)
    if not context.settings.is_upstream(repo) or not state.heads:
        return
    if await merge_base.ask(context, state):
        state = await state_of(context, repo, number)
    files = await changed_files.find(context, state)
    async with context.store.read() as tx:
        present = await pulls.checks_of(tx, state.repo, state.number)
        heads = _looked_after(state, present)
        plan = await _plan(tx, context, state, heads=heads, present=present, files=files)
        others = await gates.others(tx, state, plan, naming.gate(context.settings.check_prefix))
    # before anything is written: what has been written is no news to whoever looks again after a crash
    if others:
        async with context.store.transaction() as tx:
            for other in sorted(others):
                tx.publish(repo, other)
    metrics.WRITES_SAVED.inc(plan.unchanged)
    now = context.clock.now()
    wait, refusals = await _write_all(context, state, plan, now)
    async with context.store.transaction() as tx:
        _look_again(tx, task.key, plan, wait, now)
        if _any_unconfirmable(heads):
            tx.enqueue("publish", task.key, delay=QUIET_AGAIN)
        for run in _unheard_of(heads):
            tx.enqueue("confirm", run, delay=CONFIRM_AFTER)
        await baselines.keep(tx, state.compared)
        await comment.follow(tx, context.settings, state)
    if wait and wait.after is None:
        raise wait
    if refusals:
        raise GiveUp("; ".join(refusals))


def _look_again(tx: Transaction, key: str, plan: Plan, wait: RetryLater | None, now: int) -> None:
    """Have a pull request looked at again when the first of what had to wait may be written."""
    later = [(one.not_before - now) / 1000 for one in plan.writes if one.not_before > now]
    if wait and wait.after is not None:  # not raised: a task that waits already may be due before
        log.info("some checks have to wait", reason=str(wait), after=wait.after)
        later.append(wait.after)
    if later:
        tx.enqueue("publish", key, delay=max(min(later), SHORTEST))


async def all_open(tx: Transaction, settings: Settings, *, account: str | None = None) -> None:
    """Look at every open pull request of upstream, or of one account's, also at one that nobody was told of."""
    for repo, number in await pulls.all_open(tx):
        mine = account is None or repo.partition("/")[0].casefold() == account.casefold()
        if mine and settings.is_upstream(repo):
            tx.publish(upstream.named(settings, repo), number)


async def _write_all(
    context: Context, state: PullState, plan: Plan, now: int
) -> tuple[RetryLater | None, list[str]]:
    """Write what is due; returns why some of it has to wait, and what GitHub refused for good."""
    refusals: list[str] = []
    wait: RetryLater | None = None
    full: set[tuple[bool, bool]] = set()  # what there is no room for: trying each of a thousand takes seconds
    for one in plan.writes:
        sort = one.urgent, one.check_run_id is None
        if one.not_before > now or sort in full:
            continue
        try:
            await write(context, state, one)
        except GitHubRefused as error:
            log.warning("check run refused", name=one.check.name, reason=str(error))
            refusals.append(f"{one.check.name}: {error}")
        except RetryLater as error:
            if error.after is None:  # GitHub is broken or out of reach: no use in trying the others
                return error, refusals
            if isinstance(error, NoRoom):
                full.add(sort)
            if wait is None or wait.after is None or error.after < wait.after:
                wait = error
    return wait, refusals


def _looked_after(state: PullState, present: Sequence[Row]) -> list[Head]:
    """Return the newest heads, and older ones on which a check run has yet to be concluded."""
    begun = {row["head_sha"] for row in present if row["status"] != "completed"}
    older = [head for head in state.heads[query.MOST_HEADS :] if head.judged and head.view.head_sha in begun]
    return [*state.heads[: query.MOST_HEADS], *older]


async def _plan(
    tx: Transaction,
    context: Context,
    state: PullState,
    *,
    heads: Sequence[Head],
    present: Sequence[Row],
    files: frozenset[str],
) -> Plan:
    """Return everything that has to be written: gates and verdicts, then the rest and mere words of a gate last."""
    settings = context.settings
    gate_name = naming.gate(settings.check_prefix)
    terms = Terms(
        prefix=settings.check_prefix,
        label_prefixes=settings.label_prefixes,
        labels=state.labels,
        gate=await pulls.gate_exists(tx, state.repo, gate_name),
        interval=settings.publish_interval * 1000,
    )
    plan = await gates.plan(tx, settings, state, heads, terms)
    for head in heads:
        rows = [row for row in present if row["head_sha"] == head.view.head_sha]
        told = {key: facts.dispatch for key, facts in head.facts.items()}
        now = head is state.current
        here = replace(terms, current=now, files=files if now else frozenset())
        plan += desired.backends(head.view, told, head.entries, rows, here)

    def order(one: Write) -> tuple[bool, bool]:
        return not one.urgent, not one.urgent and one.check.name == gate_name

    return replace(plan, writes=tuple(sorted(plan.writes, key=order)))


def _unheard_of(heads: Sequence[Head]) -> list[str]:
    """Return the runs whose verdict awaits GitHub's word and of which it has said none: keys of `confirm`."""
    keys = []
    for facts, backend, confirmed in _undecided(heads):
        green = backend.state == "confirming"
        runs = verdict.expected_attempts(facts) if green else verdict.run_again(facts)
        unheard = [item for item in runs.items() if confirmed and item not in facts.words]
        keys += [run_key.of(backend.repo, run_id, attempt) for run_id, attempt in unheard]
    return keys


def _any_unconfirmable(heads: Sequence[Head]) -> bool:
    """Whether the verdict on a backend that GitHub cannot confirm waits for a minute without news."""
    return any(
        not confirmed and (backend.state == "confirming" or verdict.run_again(facts))
        for facts, backend, confirmed in _undecided(heads)
    )


def _undecided(heads: Sequence[Head]) -> Iterator[tuple[Facts, Backend, bool]]:
    """Yield the backends that were told and whose verdict is to come, and whether it takes GitHub's word."""
    for head in heads:
        for backend in head.view.backends:
            key = backend.repo.casefold()
            if key in head.facts and not backend.state.finished:
                entry = head.entries.get(key)
                yield head.facts[key], backend, entry is None or entry.confirm
