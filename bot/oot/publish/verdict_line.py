"""The first line of the comment: what blocks merging and whose failures are new. Pure.

It says what the gate says, in the gate's words: see `bot.oot.verdict.gate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core import escaping, text
from bot.oot.verdict import gate
from bot.oot.verdict.gate import GateState
from bot.oot.verdict.verdict import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.verdict.failure import FailureList
    from bot.oot.verdict.gate import Gate
    from bot.oot.verdict.view import Backend

NAMED = 3  # backends that are named of each kind
NOT_BLOCKED = "no backend blocks merging"
NOT_ASKED = "none blocks or was asked for"


def describe_verdict(backends: Sequence[Backend], failures: FailureList, *, unknown: str = "") -> str:
    """Return the verdict on some backends, as in "❌ `tpu` blocks merging: 2 new failures · `npu`: 1 new failure".

    `unknown` is the reason why the blocking backends are unknown.
    """
    if not backends and not unknown:
        return NOT_ASKED
    found = gate.judge(backends, unknown=unknown)
    red = [one for one in backends if one.state.red and not one.decides and not one.ignored_by]
    unrelated = [one for one in red if _is_unrelated(one, failures)]
    theirs = [one for one in red if one not in unrelated]
    parts = [*_of_gate(found, failures), *_failing(theirs, failures)]
    if unrelated:
        parts.append(f"{_count_unrelated(unrelated, failures)} unrelated")
    return " · ".join(parts)


def _of_gate(found: Gate, failures: FailureList) -> list[str]:
    match found.state:
        case GateState.FAILED:
            blocking = [
                f"{escaping.code(one.label)} blocks merging: {gate.describe_failure(one, failures)}"
                for one in found.stopping[:NAMED]
            ]
            blocking[0] = f"❌ {blocking[0]}"
            rest = len(found.stopping) - NAMED
            return [*blocking, f"{rest} more block merging"] if rest > 0 else blocking
        case GateState.WAITING:
            return [_waiting(found)]
        case _ if not found.blocking:
            return [f"✅ {NOT_BLOCKED}"]
        case _:
            return [f"✅ {found.sentence(open_=True)}"]


def _waiting(found: Gate) -> str:
    if found.unknown:
        return f"⏳ waiting: {escaping.text(found.unknown)}"
    awaited = [escaping.code(one.label) for one in found.awaited]
    parts = [f"⏳ waiting for {text.listing(awaited)}"] if awaited else []
    held = [escaping.code(one.label) for one in found.deciding if one.state is State.HELD]
    return " · ".join([*parts, *([f"✋ {text.listing(held)} held back"] if held else [])])


def _failing(red: Sequence[Backend], failures: FailureList) -> list[str]:
    named = [f"{escaping.code(one.label)}: {gate.describe_failure(one, failures)}" for one in red[:NAMED]]
    rest = len(red) - NAMED
    return [*named, f"{rest} more failed"] if rest > 0 else named


def _is_unrelated(backend: Backend, failures: FailureList) -> bool:
    """Whether all that failed there is likely not the change's."""
    found = failures.on_backend(backend.repo)
    return bool(found and backend.failing) and all(one.is_known_on(backend.repo) for one in found)


def _count_unrelated(backends: Sequence[Backend], failures: FailureList) -> int:
    """Return how many failures some backends have, one of several of them once."""
    found = {id(one): one.count for backend in backends for one in failures.on_backend(backend.repo)}
    return sum(found.values())
