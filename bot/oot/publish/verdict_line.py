"""The first line of the comment: what blocks merging and whose failures are new. Pure.

It says what the gate says, in the gate's words: see `bot.oot.verdict.gate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core import escaping, text
from bot.oot.verdict import gate
from bot.oot.verdict.gate import GateState
from bot.oot.verdict.verdict import State
from bot.oot.verdict.view import History

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.verdict.gate import Gate
    from bot.oot.verdict.view import Backend

NAMED = 3  # backends that are named of each kind
_NOT_THE_CHANGE = frozenset({History.KNOWN, History.FLAKY})
NOT_BLOCKED = "no backend blocks merging"
NOT_ASKED = "none blocks or was asked for"


def describe_verdict(backends: Sequence[Backend], *, unknown: str = "") -> str:
    """Return the verdict on some backends, as in "❌ `tpu` blocks merging: 2 new failures · `npu`: 1 new failure".

    `unknown` is the reason why the blocking backends are unknown.
    """
    if not backends and not unknown:
        return NOT_ASKED
    found = gate.judge(backends, unknown=unknown)
    red = [one for one in backends if one.state.red and not one.decides and not one.ignored_by]
    unrelated = [one for one in red if _is_unrelated(one)]
    parts = [*_of_gate(found), *_failing([one for one in red if one not in unrelated])]
    if unrelated:
        count = sum(len(one.failing) for one in unrelated)
        parts.append(f"{count} unrelated")
    return " · ".join(parts)


def _of_gate(found: Gate) -> list[str]:
    match found.state:
        case GateState.FAILED:
            blocking = [
                f"{'❌ ' if not at else ''}{escaping.code(one.label)} blocks merging: {gate.describe_failure(one)}"
                for at, one in enumerate(found.stopping[:NAMED])
            ]
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


def _failing(red: Sequence[Backend]) -> list[str]:
    named = [f"{escaping.code(one.label)}: {gate.describe_failure(one)}" for one in red[:NAMED]]
    rest = len(red) - NAMED
    return [*named, f"{rest} more failed"] if rest > 0 else named


def _is_unrelated(backend: Backend) -> bool:
    """Whether all that failed there also fails without the change, or passes as often."""
    return bool(backend.failing) and all(job.history in _NOT_THE_CHANGE for job in backend.failing)
