"""What has to be written of the gates: on a pull request's heads, and where a merge queue waits for it?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bot import query
from bot.domain import desired_gate, merge_queue
from bot.domain.view import Pull
from bot.domain.writes import Plan
from bot.query import Head
from bot.store import merge_groups, pulls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.domain.writes import Terms
    from bot.query import PullState
    from bot.settings import Settings
    from bot.store import Transaction

MOST_JUDGED = 100  # other pull requests whose heads are judged for one gate


async def plan(
    tx: Transaction, settings: Settings, state: PullState, chosen: Sequence[Head], terms: Terms
) -> Plan:
    """Return what has to be written of the gates on some heads.

    Of several open pull requests with one head, the one that came to it first writes its gate: a commit has one. It
    tells the worst of that author's verdicts, as what is well on one base branch may not be on another.
    """

    async def worst(head: Head, others: Sequence[int]) -> Head:
        if len(others) > MOST_JUDGED:
            unknown = f"{len(others) + 1} open pull requests decide here: close those that are not needed"
            return replace(head, view=replace(head.view, gate_unknown=unknown))
        inside = [head, *[await _head_of(tx, settings, state, number) for number in others]]
        return min(inside, key=lambda one: desired_gate.hope(one.view, terms))

    deciders = await pulls.deciders(tx, state.repo, [head.view.head_sha for head in chosen])
    heads: list[tuple[str, Head, bool]] = []
    for head in chosen:
        first, *others = deciders.get(head.view.head_sha, [state.number])
        if first == state.number:
            heads.append((head.view.head_sha, await worst(head, others), head is state.current))
    groups = await merge_groups.waiting(tx, state.repo) if state.current else []
    for sha in [group["head_sha"] for group in groups if group["pr_number"] == state.number]:
        mine = await _head_of(tx, settings, state, state.number)
        heads.append((sha, await worst(mine, merge_queue.chain(groups, sha)[1:]), True))
    made = await pulls.gates_on(tx, state.repo, [sha for sha, *_ in heads], terms.gate_name)
    wanted = Plan()
    for sha, head, current in heads:
        view = replace(head.view, head_sha=sha)
        told = {key: facts.dispatch for key, facts in head.facts.items()}
        on_it = [row for row in made if row["head_sha"] == sha]
        here = replace(terms, current=current)
        wanted += desired_gate.gate(view, told, on_it, here, due=head.expecting, untold=head.untold)
    return wanted


async def others(tx: Transaction, state: PullState, plan: Plan, gate_name: str) -> set[int]:
    """Return the pull requests whose gates depend on this one's verdict, when it is news to them.

    To those behind it in a merge queue it is while a gate has to be written: two pull requests can each be behind the
    other, once in the queue as it was and once as it is. The one that writes the gate of their common commit always
    looks at it again.
    """
    found: set[int] = set()
    if any(one.check.name == gate_name for one in plan.writes):
        found |= merge_queue.behind(await merge_groups.waiting(tx, state.repo), state.number)
    if state.current:
        sha = state.current.view.head_sha
        first, *rest = (await pulls.deciders(tx, state.repo, [sha])).get(sha, [state.number])
        found |= {first} if state.number in rest else set()
    return found


async def _head_of(tx: Transaction, settings: Settings, state: PullState, number: int) -> Head:
    """Return the head of a pull request of the queue that people look at now."""
    if number != state.number:
        state = await query.pull_state(tx, settings, state.repo, number, newest=1)
    if state.current is not None:
        return state.current
    unknown = f"nothing is known of pull request {number}, which is before this one in the queue"
    view = Pull(repo=state.repo, number=number, head_sha="", gate_unknown=unknown)
    return Head(view=view, facts={}, entries={}, expecting=True)
