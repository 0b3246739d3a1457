"""Open pull requests in one line each: their gate, the backends that fail, and how long they have waited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.oot.publish import gates
from bot.oot.verdict.pull_state import read_pull
from bot.oot.verdict.view import Role, anchor_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ingest.rows import PullRow
    from bot.oot.verdict.gate import Gate, GateState
    from bot.oot.verdict.view import Backend
    from bot.web.asked import Asked


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A backend that fails on the newest commit of a pull request."""

    label: str
    anchor: str  # of its section on the page
    blocks: bool


@dataclass(frozen=True, kw_only=True)
class PullLine:
    """A pull request in a list."""

    pull: PullRow
    gate: Gate | None = None  # of the newest commit; None: nothing blocks there
    failing: tuple[Failing, ...] = ()  # backends, those that block first
    unfinished: int = 0  # backends

    @property
    def state(self) -> GateState | None:
        """The state of its gate."""
        return self.gate.state if self.gate else None

    @property
    def word(self) -> str:
        """What became of it, or that it is a draft."""
        if self.pull["merged"]:
            return "merged"
        return "draft" if self.pull["draft"] and self.pull["state"] == "open" else self.pull["state"] or ""


async def read_lines(asked: Asked, pulls: Sequence[PullRow]) -> list[PullLine]:
    """Return pull requests with what is decided of the newest commit of each, where they are open."""
    return [await _line(asked, one) if one["state"] == "open" else PullLine(pull=one) for one in pulls]


async def _line(asked: Asked, pull: PullRow) -> PullLine:
    tx, settings = asked.tx, asked.settings
    state = await read_pull(tx, settings, pull["repo"], pull["number"] or 0, newest=1)
    head = state.current
    if head is None:
        return PullLine(pull=pull)
    shown = await gates.read_shown_gates(tx, settings, state, [head])
    gate = shown.get(head.view.head_sha)
    backends = head.view.backends
    return PullLine(
        pull=pull,
        gate=gate.gate if gate else None,
        failing=tuple(_failing(one) for one in sorted(backends, key=_order) if one.state.red),
        unfinished=sum(not one.state.finished for one in backends),
    )


def _order(backend: Backend) -> tuple[bool, str]:
    return backend.role is not Role.BLOCKING, backend.label.casefold()


def _failing(backend: Backend) -> Failing:
    return Failing(label=backend.label, anchor=anchor_of(backend.repo), blocks=backend.role is Role.BLOCKING)
