"""Gates to be written: on a pull request's heads, and on the commits of merge queues it is in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bot.ingest import pull_records
from bot.oot.publish import desired_gate, merge_queue, rows
from bot.oot.publish.check_writes import Plan
from bot.oot.verdict import pull_state
from bot.oot.verdict.head import Head
from bot.oot.verdict.view import Pull

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.publish.check_writes import Terms
    from bot.oot.verdict.pull_state import PullState

MOST_JUDGED = 100  # other pull requests whose heads are judged for one gate


async def plan(
    tx: Transaction, settings: Settings, state: PullState, chosen: Sequence[Head], terms: Terms
) -> Plan:
    """Return the writes of the gates on some heads, and on the commits of a merge queue.

    A commit has one gate. Of several open pull requests with the same head, the first to have had it writes the gate,
    with the worst of their verdicts, as a commit may pass on one base branch and fail on another.
    """
    judge = _Judge(tx=tx, settings=settings, state=state, terms=terms)
    gates = [*await judge.on_heads(chosen), *await judge.in_queue()]
    written = await rows.gates_on(tx, state.repo, [gate.sha for gate in gates], terms.gate_name)
    wanted = Plan()
    for gate in gates:
        head = gate.head
        view = replace(head.view, head_sha=gate.sha)
        dispatches = {key: facts.dispatch for key, facts in head.facts.items()}
        present = [row for row in written if row["head_sha"] == gate.sha]
        here = replace(terms, current=gate.current)
        wanted += desired_gate.gate(
            view, dispatches, present, here, due=head.expecting, undispatched=head.undispatched
        )
    return wanted


async def dependents(tx: Transaction, state: PullState, plan: Plan, gate_name: str) -> set[int]:
    """Return the pull requests whose gates depend on this one's verdict, where it may have changed.

    Those behind it in a merge queue only while a gate has to be written: two pull requests can each be behind the
    other, once in the queue as it was and once as it is. The one that writes the gate of a common commit always.
    """
    found: set[int] = set()
    if any(one.check.name == gate_name for one in plan.writes):
        found |= merge_queue.behind(await merge_queue.waiting(tx, state.repo), state.number)
    if state.current:
        sha = state.current.view.head_sha
        first, *rest = (await pull_records.deciders(tx, state.repo, [sha])).get(sha, [state.number])
        found |= {first} if state.number in rest else set()
    return found


@dataclass(frozen=True, kw_only=True)
class _Gate:
    """A gate that a pull request writes."""

    sha: str
    head: Head  # that decides on it
    current: bool


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """Finds the gates that a pull request writes, and the heads that decide on them."""

    tx: Transaction
    settings: Settings
    state: PullState
    terms: Terms

    async def on_heads(self, chosen: Sequence[Head]) -> list[_Gate]:
        """Return the gates of those heads that are this pull request's to write."""
        shas = [head.view.head_sha for head in chosen]
        deciders = await pull_records.deciders(self.tx, self.state.repo, shas)
        gates = []
        for head in chosen:
            sha = head.view.head_sha
            first, *others = deciders.get(sha, [self.state.number])
            if first == self.state.number:
                worst = await self._worst(head, others)
                gates.append(_Gate(sha=sha, head=worst, current=head is self.state.current))
        return gates

    async def in_queue(self) -> list[_Gate]:
        """Return the gates of this pull request's commits in merge queues."""
        groups = await merge_queue.waiting(self.tx, self.state.repo) if self.state.current else []
        gates = []
        for sha in [group["head_sha"] for group in groups if group["pr_number"] == self.state.number]:
            head = await self._head_of(self.state.number)
            worst = await self._worst(head, merge_queue.chain(groups, sha)[1:])
            gates.append(_Gate(sha=sha, head=worst, current=True))
        return gates

    async def _worst(self, head: Head, others: Sequence[int]) -> Head:
        """Return the head with the worst gate: this one, or the current head of one of the other pull requests."""
        if len(others) > MOST_JUDGED:
            unknown = f"{len(others) + 1} open pull requests decide here: close those that are not needed"
            return replace(head, view=replace(head.view, gate_unknown=unknown))
        heads = [head, *[await self._head_of(number) for number in others]]
        return min(heads, key=lambda one: desired_gate.rank(one.view, self.terms))

    async def _head_of(self, number: int) -> Head:
        """Return the current head of a pull request, or one that keeps the gate waiting when it is unknown."""
        state, repo = self.state, self.state.repo
        if number != state.number:
            state = await pull_state.read_pull(self.tx, self.settings, repo, number, newest=1)
        if state.current is not None:
            return state.current
        unknown = f"nothing is known of pull request {number}, which is before this one in the queue"
        view = Pull(repo=repo, number=number, head_sha="", gate_unknown=unknown)
        return Head(view=view, facts={}, entries={}, expecting=True)
