"""Gates: the one each commit should have, on a pull request's heads and on the commits of merge queues."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from bot.ingest import record_reads
from bot.oot.publish import merge_queue, rows
from bot.oot.publish.check import Plan, needed
from bot.oot.publish.check_run_text import gate_check
from bot.oot.verdict import pull_state
from bot.oot.verdict.head import Head
from bot.oot.verdict.view import Pull

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.publish.check import Terms
    from bot.oot.publish.check_run_text import CheckRun
    from bot.oot.publish.rows import CheckRow
    from bot.oot.results.rows import DispatchRow
    from bot.oot.verdict.pull_state import PullState
    from bot.oot.verdict.view import Backend


def gate_writes(
    pull: Pull,
    dispatches: Mapping[str, DispatchRow],
    present: Sequence[CheckRow],
    terms: Terms,
    *,
    due: bool,
    undispatched: Sequence[Backend] = (),
) -> Plan:
    """Return what has to be written of the gate; `present` holds this commit's gates, oldest first.

    There is a gate where a backend blocks. Where none does there is one if the repository has ever had a gate and the
    commit is `due` for one, so that "no blocking backend" is never written on a commit that was not dispatched.

    `undispatched` backends block, but the commit was overtaken or closed before it was dispatched to them for its last
    base branch. The gate does not wait for them there, but does not turn green without them either: the commit may
    become the head again.
    """
    blocking = {backend.repo.casefold(): backend for backend in pull.backends if backend.blocks}
    row = present[-1] if present else None
    wanted = bool(blocking) or (terms.gate and due)
    if not wanted or (row is None and not terms.current):
        return Plan()
    check = _check(pull, terms)
    if undispatched and check.conclusion == "success" and not (row and row["conclusion"] == "success"):
        missing = {one.repo.casefold() for one in undispatched}
        others = [one for one in pull.backends if one.repo.casefold() not in missing]
        check = _check(replace(pull, backends=(*others, *undispatched)), terms)
    number = int(row["external_id"].rpartition("/")[2]) if row else 1
    if row and row["status"] == "completed" and check.status != "completed":
        row, number = None, number + 1
    check = replace(check, external_id=_external_id(pull, number))
    # before any dispatch the gate is not urgent: that can be many pull requests at once
    early = bool(blocking) and not any(key in dispatches for key in blocking)
    # neither is new wording of an undecided gate: the backends' own check runs go first
    urgent = not early if row is None else not row["digest"]
    return Plan.of([needed(check, _basis(blocking, dispatches), row, terms, urgent=urgent)])


def rank(pull: Pull, terms: Terms) -> int:
    """Return how good a head's gate is: 0 failed, 1 undecided, 2 passed."""
    conclusion = _check(pull, terms).conclusion
    return 2 if conclusion == "success" else 0 if conclusion else 1


def _check(pull: Pull, terms: Terms) -> CheckRun:
    """Return the gate as it should be, without our key."""
    return gate_check(
        pull.backends,
        prefix=terms.prefix,
        head_sha=pull.head_sha,
        external_id="",
        page_url=pull.page_url,
        unknown=pull.gate_unknown,
    )


def _basis(blocking: Mapping[str, Backend], dispatches: Mapping[str, DispatchRow]) -> str:
    """Return what the gate is about: each blocking backend's dispatch, if any, and attempt."""
    about = sorted(
        f"{dispatches[key]['id'] if key in dispatches else key}/{backend.attempt}"
        for key, backend in blocking.items()
    )
    return hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:16]


def _external_id(pull: Pull, number: int) -> str:
    """Return our key of one of a commit's gates, counted from 1."""
    repository = hashlib.sha256(pull.repo.casefold().encode()).hexdigest()[:8]
    return f"gate/{repository}/{pull.head_sha}/{number}"


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
        wanted += gate_writes(
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
        first, *rest = (await record_reads.deciders(tx, state.repo, [sha])).get(sha, [state.number])
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
        deciders = await record_reads.deciders(self.tx, self.state.repo, shas)
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
        tx, state = self.tx, self.state
        groups = await merge_queue.of_pull(tx, state.repo, state.number) if state.current else []
        gates = []
        for group in groups:
            chain = await merge_queue.chain(tx, group)
            head = await self._head_of(state.number)
            worst = await self._worst(head, chain.numbers[1:], unknown=chain.unknown is not None)
            gates.append(_Gate(sha=group["head_sha"], head=worst, current=True))
        return gates

    async def _worst(self, head: Head, others: Sequence[int], *, unknown: bool = False) -> Head:
        """Return the head with the worst gate: this one, or the current head of one of the other pull requests.

        `unknown`: there are more of them, nobody knows which.
        """
        if len(others) > MOST_JUDGED:
            return _kept_waiting(
                head, f"{len(others) + 1} open pull requests decide here: close those that are not needed"
            )
        heads = [head, *[await self._head_of(number) for number in others]]
        if unknown:
            heads.append(_kept_waiting(head, "the commit it builds on is in no group that is known"))
        return min(heads, key=lambda one: rank(one.view, self.terms))

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


def _kept_waiting(head: Head, reason: str) -> Head:
    """Return a head whose gate waits, whatever its backends say."""
    return replace(head, view=replace(head.view, gate_unknown=reason))
