"""The gate of a commit: whether its blocking backends let it pass, and why not, in words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bot.core import text
from bot.oot.verdict import view
from bot.oot.verdict.verdict import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.verdict.failure import FailureList
    from bot.oot.verdict.view import Backend


class GateState(StrEnum):
    """The state of a gate."""

    PASSED = "passed"
    FAILED = "failed"
    WAITING = "waiting"


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The gate of one commit and the backends it was judged by."""

    state: GateState
    blocking: tuple[Backend, ...]  # also those that are ignored
    unknown: str = ""  # why it is unknown which backends block; empty when it is known
    left: bool = False  # stays as it was last written: nothing decides on this commit any more
    failures: FailureList | None = None  # on the commit; None where only states are known

    @property
    def conclusion(self) -> str | None:
        """The conclusion of its check run; None while that is in progress."""
        return {GateState.PASSED: "success", GateState.FAILED: "failure"}.get(self.state)

    @property
    def deciding(self) -> tuple[Backend, ...]:
        """The backends that have to pass: those that block and are not ignored."""
        return tuple(backend for backend in self.blocking if backend.decides)

    @property
    def stopping(self) -> tuple[Backend, ...]:
        """The backends that make it fail."""
        return tuple(backend for backend in self.deciding if _stops(backend))

    @property
    def passed(self) -> int:
        """Number of backends that have passed, not counting ignored ones."""
        return sum(backend.state is State.SUCCESS and not backend.level_unknown for backend in self.deciding)

    @property
    def unneeded(self) -> int:
        """Number of backends it passes without, as their entries allow where no relevant file changed."""
        return sum(backend.passes_unrun for backend in self.deciding)

    @property
    def awaited(self) -> tuple[Backend, ...]:
        """The backends it waits for, not counting those held back."""
        return tuple(
            backend for backend in self.deciding if _is_missing(backend) and backend.state is not State.HELD
        )

    @property
    def waiting_since(self) -> int | None:
        """When it began to wait for the first of them, in epoch milliseconds; None where nothing was sent."""
        since = [at for backend in self.awaited if (at := _begun_at(backend)) is not None]
        return min(since, default=None) if self.state is GateState.WAITING else None

    @property
    def title(self) -> str:
        """The title of its check run."""
        match self.state:
            case _ if self.left:
                return f"{self.state}, as last written"
            case GateState.PASSED:
                return self._passed(total="")
            case GateState.FAILED:
                return text.listing(
                    [f"{backend.label} {view.state_word(backend.state)}" for backend in self.stopping]
                )
            case _:
                return self._waiting()

    def sentence(self, *, open_: bool) -> str:
        """Return what the backends say of merging; `open_`: the commit is the newest of an open pull request.

        Upstream's own checks are not judged: only GitHub knows whether all required ones have passed.
        """
        match self.state:
            case _ if self.left:
                return self.title
            case GateState.PASSED:
                total = f" of {len(self.deciding)}"
                return f"{'backends allow it' if open_ else 'passed'}: {self._passed(total=total)}"
            case GateState.FAILED:
                listed = [
                    f"{backend.label}: {describe_gate_failure(backend, self.failures)}"
                    for backend in self.stopping
                ]
                return f"blocked by {text.listing(listed)}"
            case _:
                return self._waiting()

    def _passed(self, *, total: str) -> str:
        if not self.blocking:
            return "no blocking backend"
        decide, ignored = len(self.deciding), len(self.blocking) - len(self.deciding)
        counted = decide - self.unneeded
        others = {"not needed": self.unneeded, "ignored": ignored}
        without = [(count, word) for word, count in others.items() if count]
        if not counted:
            (count, word), *rest = without
            parts = [f"{text.plural(count, 'blocking backend')} {word}"]
        else:
            noun = "blocking backend" if (decide if total else counted) == 1 else "blocking backends"
            parts, rest = [f"{counted}{total} {noun} passed"], without
        return ", ".join([*parts, *(f"{count} {word}" for count, word in rest)])

    def _waiting(self) -> str:
        if self.unknown:
            return f"waiting: {self.unknown}"
        awaited = [backend.label for backend in self.awaited]
        held = any(backend.state is State.HELD for backend in self.deciding)
        parts = [f"waiting for {text.listing(awaited)}"] if awaited else []
        parts += [f"needs {view.OK_TO_TEST}"] if held else []
        return "; ".join(parts)


def judge_gate(backends: Sequence[Backend], *, unknown: str = "") -> Gate:
    """Judge the gate: it passes when every blocking backend has passed or is ignored.

    `unknown` is the reason why the blocking backends are unknown; the gate then waits.
    """
    blocking = tuple(
        sorted(
            (backend for backend in backends if backend.blocks),
            key=lambda backend: (backend.label, backend.repo),
        )
    )
    counted = [backend for backend in blocking if backend.decides]
    if unknown or not any(_stops(backend) for backend in counted):
        waits = bool(unknown) or any(_is_missing(backend) for backend in counted)
        state = GateState.WAITING if waits else GateState.PASSED
    else:
        state = GateState.FAILED
    return Gate(state=state, blocking=blocking, unknown=unknown)


def describe_gate_failure(backend: Backend, failures: FailureList | None) -> str:
    """Describe why a backend has not passed, by the list of failures: "2 new failures", "never started"."""
    if backend.state is not State.FAILURE or failures is None:
        return view.state_word(backend.state)
    counts = failures.count_on(backend.repo)
    return counts.phrase if counts.total else view.state_word(backend.state)


def _stops(backend: Backend) -> bool:
    """Whether a deciding backend makes the gate fail: it has finished without passing."""
    return backend.state.finished and backend.state is not State.SUCCESS and not backend.passes_unrun


def _is_missing(backend: Backend) -> bool:
    return not backend.state.finished or backend.level_unknown


def _begun_at(backend: Backend) -> int | None:
    """Return when the awaited run began: for a re-run, when the first of its jobs started."""
    if backend.attempt == 1:
        return backend.dispatched_at
    starts = [job.started_at for job in backend.jobs if not job.finished and job.started_at is not None]
    return min(starts, default=None)
