"""Gates: the one each commit should have, on a pull request's heads and on the commits of merge queues."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from bot.ingest import record_store
from bot.oot.publish import check_text, merge_queue, rows
from bot.oot.publish.check import CheckPlan, write_needed
from bot.oot.publish.check_text import gate_check
from bot.oot.verdict import gate, pull_state
from bot.oot.verdict.gate import Gate, GateState
from bot.oot.verdict.pull_state import PullHead
from bot.oot.verdict.view import Pull

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.publish.check import CheckTerms
    from bot.oot.publish.tables import CheckRow
    from bot.oot.results.tables import DispatchRow
    from bot.oot.verdict.pull_state import PullState
    from bot.oot.verdict.view import Backend

MOST_JUDGED = 100  # other pull requests whose heads are judged for one gate
RANKS = {GateState.FAILED: 0, GateState.WAITING: 1, GateState.PASSED: 2}


@dataclass(frozen=True, kw_only=True)
class ShownGate:
    """The gate of a commit as pages show it."""

    gate: Gate
    number: int  # the pull request that decides on it
    check_run_id: int | None  # None until it was written


@dataclass(frozen=True, kw_only=True)
class _Commit:
    """A commit that may have a gate."""

    sha: str
    head: PullHead  # that decides on it
    current: bool


def decide_gate(head: PullHead, present: Sequence[CheckRow], *, ever: bool, current: bool) -> Gate | None:
    """Return the gate a commit should have, None for none; `present` holds those it has had, oldest first.

    There is a gate where a backend blocks. Where none does, there is one if the repository has `ever` had a gate and
    the commit is due for one, so that "no blocking backend" is never written on a commit that was not dispatched. None
    begins on a commit that is not `current`.

    A backend that is undispatched on this head blocks, but the commit was overtaken or closed before it was dispatched
    to it for its last base branch. The gate does not wait for it there, but does not turn green without it either: the
    commit may become the head again.
    """
    pull, row = head.view, present[-1] if present else None
    blocked = any(backend.blocks for backend in pull.backends)
    if not (blocked or (ever and head.expecting)) or (row is None and not current):
        return None
    judged = gate.judge_gate(pull.backends, unknown=pull.gate_unknown)
    was_green = row is not None and row["conclusion"] == "success"
    if head.undispatched and judged.state is GateState.PASSED and not was_green:
        missing = {backend.repo.casefold() for backend in head.undispatched}
        others = [backend for backend in pull.backends if backend.repo.casefold() not in missing]
        return gate.judge_gate((*others, *head.undispatched), unknown=pull.gate_unknown)
    return judged


async def plan_gates(
    tx: Transaction, settings: Settings, state: PullState, chosen: Sequence[PullHead], terms: CheckTerms
) -> CheckPlan:
    """Return the writes of the gates on some heads, and on the commits of a merge queue.

    A commit has one gate. Of several open pull requests with the same head, the first to have had it writes the gate,
    with the worst of their verdicts, as a commit may pass on one base branch and fail on another.
    """
    judge = _Judge(tx=tx, settings=settings, state=state)
    commits = [*await judge.on_heads(chosen), *await judge.in_queue()]
    written = await rows.gates_on(tx, state.repo, [commit.sha for commit in commits], terms.gate_name)
    planned = CheckPlan()
    for commit in commits:
        present = [row for row in written if row["head_sha"] == commit.sha]
        planned += _writes(commit, present, replace(terms, current=commit.current))
    return planned


async def read_shown_gates(
    tx: Transaction, settings: Settings, state: PullState, chosen: Sequence[PullHead]
) -> dict[str, ShownGate]:
    """Return the gates of some heads by commit, written or about to be, even where another pull request decides."""
    if not chosen or not settings.is_upstream(state.repo):
        return {}
    name = check_text.gate_name(settings.check_prefix)
    commits = await _Judge(tx=tx, settings=settings, state=state).on_heads(chosen, everyones=True)
    written = await rows.gates_on(tx, state.repo, [commit.sha for commit in commits], name)
    ever = bool(written) or await rows.gate_exists(tx, state.repo, name)
    shown = {}
    for commit in commits:
        present = [row for row in written if row["head_sha"] == commit.sha]
        decided = decide_gate(commit.head, present, ever=ever, current=commit.current) or _left(present)
        if decided is not None:
            check_run_id = present[-1]["check_run_id"] if present else None
            number = commit.head.view.number
            shown[commit.sha] = ShownGate(gate=decided, number=number, check_run_id=check_run_id)
    return shown


async def dependent_pulls(tx: Transaction, state: PullState, plan: CheckPlan, gate_name: str) -> set[int]:
    """Return the pull requests whose gates depend on this one's verdict, if that may have changed.

    Those behind it in a merge queue are among them only while a gate has to be written: two can each be behind the
    other, in the queue as it was and as it is. The one that writes the gate of a shared commit always is.
    """
    numbers: set[int] = set()
    if any(write.check.name == gate_name for write in plan.writes):
        numbers |= merge_queue.pulls_behind(await merge_queue.waiting_groups(tx, state.repo), state.number)
    if state.current:
        sha = state.current.view.head_sha
        first, *rest = (await record_store.read_deciding_pulls(tx, state.repo, [sha])).get(
            sha, [state.number]
        )
        numbers |= {first} if state.number in rest else set()
    return numbers


def _writes(commit: _Commit, present: Sequence[CheckRow], terms: CheckTerms) -> CheckPlan:
    """Return the writes that a commit's gate needs."""
    decided = decide_gate(commit.head, present, ever=terms.gate, current=commit.current)
    if decided is None:
        return CheckPlan()
    pull = commit.head.view
    check = gate_check(
        decided, prefix=terms.prefix, head_sha=commit.sha, external_id="", page_url=pull.page_url
    )
    row = present[-1] if present else None
    number = int(row["external_id"].rpartition("/")[2]) if row else 1
    if row and row["status"] == "completed" and check.status != "completed":
        row, number = None, number + 1
    check = replace(check, external_id=_external_id(pull.repo, commit.sha, number))
    blocking = {backend.repo.casefold(): backend for backend in pull.backends if backend.blocks}
    dispatches = {key: facts.dispatch for key, facts in commit.head.facts.items()}
    # before any dispatch the gate is not urgent: that can be many pull requests at once
    early = bool(blocking) and not any(key in dispatches for key in blocking)
    # neither is new wording of an undecided gate: the backends' own check runs go first
    urgent = not early if row is None else not row["digest"]
    return CheckPlan.of([write_needed(check, _basis(blocking, dispatches), row, terms, urgent=urgent)])


def _rank(head: PullHead) -> int:
    """Return how good a head's gate is: 0 failed, 1 waiting, 2 passed."""
    return RANKS[gate.judge_gate(head.view.backends, unknown=head.view.gate_unknown).state]


def _basis(blocking: Mapping[str, Backend], dispatches: Mapping[str, DispatchRow]) -> str:
    """Return what the gate is about: each blocking backend's dispatch, if any, and attempt."""
    about = sorted(
        f"{dispatches[key]['id'] if key in dispatches else key}/{backend.attempt}"
        for key, backend in blocking.items()
    )
    return hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:16]


def _external_id(repo: str, sha: str, number: int) -> str:
    """Return our key for one of a commit's gates, counted from 1."""
    repository = hashlib.sha256(repo.casefold().encode()).hexdigest()[:8]
    return f"gate/{repository}/{sha}/{number}"


def _left(present: Sequence[CheckRow]) -> Gate | None:
    """Return the last written gate of a commit, which stays; None where there never was one."""
    row = present[-1] if present and present[-1]["check_run_id"] is not None else None
    if row is None:
        return None
    states = {"success": GateState.PASSED, "failure": GateState.FAILED}
    return Gate(state=states.get(row["conclusion"] or "", GateState.WAITING), blocking=(), left=True)


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """Finds the commits whose gates a pull request writes, and the heads that decide them."""

    tx: Transaction
    settings: Settings
    state: PullState

    async def on_heads(self, chosen: Sequence[PullHead], *, everyones: bool = False) -> list[_Commit]:
        """Return the commits whose gates this pull request writes; with `everyones`, all others too."""
        shas = [head.view.head_sha for head in chosen]
        deciders = await record_store.read_deciding_pulls(self.tx, self.state.repo, shas)
        commits = []
        for head in chosen:
            sha = head.view.head_sha
            first, *others = deciders.get(sha, [self.state.number])
            mine = first == self.state.number
            if mine or everyones:
                worst = await self._worst(head if mine else await self._head_of(first), others)
                current = head is self.state.current or not mine
                commits.append(_Commit(sha=sha, head=worst, current=current))
        return commits

    async def in_queue(self) -> list[_Commit]:
        """Return this pull request's commits in merge queues."""
        tx, state = self.tx, self.state
        groups = await merge_queue.groups_of_pull(tx, state.repo, state.number) if state.current else []
        commits = []
        for group in groups:
            chain = await merge_queue.read_chain(tx, group)
            head = await self._head_of(state.number)
            worst = await self._worst(head, chain.numbers[1:], unknown=chain.unknown is not None)
            commits.append(_Commit(sha=group["head_sha"], head=worst, current=True))
        return commits

    async def _worst(self, head: PullHead, others: Sequence[int], *, unknown: bool = False) -> PullHead:
        """Return the head with the worst gate: this one, or another pull request's current head.

        `unknown`: there are more pull requests, not known which.
        """
        if len(others) > MOST_JUDGED:
            return _kept_waiting(
                head, f"{len(others) + 1} open pull requests decide here: close those that are not needed"
            )
        heads = [head, *[await self._head_of(number) for number in others]]
        if unknown:
            heads.append(_kept_waiting(head, "the commit it builds on is in no group that is known"))
        return min(heads, key=_rank)

    async def _head_of(self, number: int) -> PullHead:
        """Return the current head of a pull request, or one that keeps the gate waiting if it is unknown."""
        state, repo = self.state, self.state.repo
        if number != state.number:
            state = await pull_state.read_pull(self.tx, self.settings, repo, number, newest=1)
        if state.current is not None:
            return state.current
        unknown = f"nothing is known of pull request {number}, which is before this one in the queue"
        view = Pull(repo=repo, number=number, head_sha="", gate_unknown=unknown)
        return PullHead(view=view, facts={}, entries={}, expecting=True)


def _kept_waiting(head: PullHead, reason: str) -> PullHead:
    """Return a head whose gate waits, whatever its backends say."""
    return replace(head, view=replace(head.view, gate_unknown=reason))
