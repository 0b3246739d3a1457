"""Writes of check runs: what has to be sent and how urgently, and the plan of all writes on a pull request."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from bot.oot.publish import check_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.publish.check_run_text import CheckRun
    from bot.oot.publish.rows import CheckRow


@dataclass(frozen=True, kw_only=True)
class Write:
    """One check run to be created (`check_run_id` None) or updated."""

    check: CheckRun
    basis: str
    label_ended: (
        bool  # ended only because the pull request lost the label, or the backend its allowlist entry
    )
    check_run_id: int | None
    digest: str
    urgent: bool  # a gate or a backend's verdict: goes first when the rate budget is short
    not_before: int  # epoch milliseconds: updates of one check run are spaced out, except verdicts


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The writes due on a head, the gate and verdicts first, and the number of check runs that need none."""

    writes: tuple[Write, ...] = ()
    unchanged: int = 0

    @classmethod
    def of(cls, wanted: Sequence[Write | None]) -> Plan:
        """Return the plan of these writes; None stands for a check run that needs none."""
        writes = [write for write in wanted if write is not None]
        ordered = sorted(writes, key=lambda write: (not write.urgent, write.not_before))
        return cls(writes=tuple(ordered), unchanged=len(wanted) - len(writes))

    def __add__(self, other: Plan) -> Plan:
        """Return both plans as one, each in its order."""
        return Plan(writes=self.writes + other.writes, unchanged=self.unchanged + other.unchanged)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The settings and the pull request's state that check runs depend on."""

    prefix: str
    label_prefixes: tuple[str, ...]
    labels: frozenset[str]  # the pull request's
    gate: bool  # a gate has been published on this repository
    interval: int  # milliseconds between two updates of one check run
    current: bool = True  # on an older head check runs continue, but none begins
    files: frozenset[str] = frozenset()  # changed by the pull request: only there are failed tests annotated

    @property
    def gate_name(self) -> str:
        """The gate's name."""
        return check_names.gate(self.prefix)


def needed(
    check: CheckRun,
    basis: str,
    row: CheckRow | None,
    terms: Terms,
    *,
    label_ended: bool = False,
    urgent: bool = False,
) -> Write | None:
    """Return the write that turns a check run into `check`, None when it is that already.

    `row` is what was written last, None if it has not begun. A verdict is always urgent.
    """
    digest = _digest(check)
    if row is not None and row["digest"] == digest and row["check_run_id"] is not None:
        return None
    concluding = row is None or (row["status"], row["conclusion"]) != (check.status, check.conclusion)
    verdict = check.status == "completed" and concluding  # new wording of the same verdict can wait
    return Write(
        check=check,
        basis=basis,
        label_ended=label_ended,
        check_run_id=row["check_run_id"] if row else None,
        digest=digest,
        urgent=urgent or verdict,
        not_before=0 if verdict or row is None else row["written_at"] + terms.interval,
    )


def _digest(check: CheckRun) -> str:
    """Return the hash of a check run's content."""
    return hashlib.sha256(msgspec.json.encode([check.body(), check.annotations], order="sorted")).hexdigest()
