"""Is a check run what it should be, and else what has to be sent, how urgently? One write each, and the plan of all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from bot.domain import naming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.domain.checkrun import CheckRun

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Write:
    """One check run to be made (`check_run_id` None) or updated."""

    check: CheckRun
    basis: str
    label_ended: bool  # concluded only because the pull request lost the label, or the backend its entry
    check_run_id: int | None
    digest: str
    urgent: bool  # a gate or a backend's verdict: goes before the rest when the budget is short
    not_before: int  # epoch milliseconds: updates of one check run keep a distance, verdicts excepted


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What has to be written on a head, the gate and verdicts first, and how much is right already."""

    writes: tuple[Write, ...] = ()
    unchanged: int = 0

    @classmethod
    def of(cls, wanted: Sequence[Write | None]) -> Plan:
        """Return the plan of the writes that are needed; None stands for a check run that is right."""
        writes = [write for write in wanted if write is not None]
        ordered = sorted(writes, key=lambda write: (not write.urgent, write.not_before))
        return cls(writes=tuple(ordered), unchanged=len(wanted) - len(writes))

    def __add__(self, other: Plan) -> Plan:
        """Return both plans as one; each keeps its order."""
        return Plan(writes=self.writes + other.writes, unchanged=self.unchanged + other.unchanged)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What settings and the pull request say about check runs."""

    prefix: str
    label_prefixes: tuple[str, ...]
    labels: frozenset[str]  # the pull request's
    gate: bool  # a gate was published on this repository before
    interval: int  # milliseconds between two updates of one check run
    current: bool = True  # on an older head what was begun goes on, and nothing begins
    files: frozenset[str] = frozenset()  # those it changes: failed tests are annotated only there

    @property
    def gate_name(self) -> str:
        """The gate's name."""
        return naming.gate(self.prefix)


def needed(
    check: CheckRun,
    basis: str,
    row: Row | None,
    terms: Terms,
    *,
    label_ended: bool = False,
    urgent: bool = False,
) -> Write | None:
    """Return the write after which a check run is `check`, None when it is already.

    `row` is what we wrote last, None where it was never begun. A verdict is urgent by itself.
    """
    now_is = _digest(check)
    if row is not None and row["digest"] == now_is and row["check_run_id"] is not None:
        return None
    concluding = row is None or (row["status"], row["conclusion"]) != (check.status, check.conclusion)
    verdict = check.status == "completed" and concluding  # more words to the same verdict can wait
    return Write(
        check=check,
        basis=basis,
        label_ended=label_ended,
        check_run_id=row["check_run_id"] if row else None,
        digest=now_is,
        urgent=urgent or verdict,
        not_before=0 if verdict or row is None else row["written_at"] + terms.interval,
    )


def _digest(check: CheckRun) -> str:
    """Return what identifies a check run's content."""
    return hashlib.sha256(msgspec.json.encode([check.body(), check.annotations], order="sorted")).hexdigest()
