"""Trouble in a column: since which commit it is broken, and what was only an outage or a flake.

Columns are given as their cells on the commits of a branch, newest first; None where a commit has none. Only O, F, X
and T are evidence: what was cancelled, skipped or is still running says nothing about the code.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bot.ci.trunk.cells import FAILED, FLAKY, PASSED, SUCCESS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bot.ci.trunk.cells import Cell

Column = Sequence["Cell | None"]
BROKEN_AFTER = 3  # failures in a row
SAME_TEST_AFTER = 2  # failures in a row, if a test fails in all of them that the job passed before
OUTAGE_FROM = 10  # columns failing on one commit
STALE_AFTER = 3  # commits without a result
EVIDENCE = PASSED | FAILED
NAMED_BY = {"backends": 3, "checks": 2}  # parts of a column's name that say whose it is
# a failure between two passes; or two that differ, each then alone of its kind
_FLAKE = re.compile(f"(?<={SUCCESS})[{''.join(sorted(FAILED))}]{{1,{BROKEN_AFTER - 1}}}(?={SUCCESS})|{FLAKY}")


class State(StrEnum):
    """How a column stands on a branch."""

    OK = "ok"
    SUSPECT = "suspect"  # one or two failures in a row
    BROKEN = "broken"
    UNKNOWN = "unknown"  # nothing finished on the newest commits


@dataclass(frozen=True, kw_only=True)
class Breakage:
    """A column that fails on the newest commits. Places are indexes into the column, 0 is the newest commit."""

    first_bad: int
    last_good: int | None  # None: before what is known
    failures: int
    same: bool  # whether every failure looks the same; else there are several

    @property
    def suspects(self) -> range:
        """The commits that may have broken it, newest first: everything after the last good one."""
        return range(self.first_bad, self.last_good if self.last_good is not None else self.first_bad + 1)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a column's state, decided by one commit's cell."""

    place: int
    before: State
    after: State
    first_bad: int
    last_good: int | None


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """How a column's finished cells are split; a failure counts once."""

    runs: int = 0
    passed: int = 0
    infra: int = 0  # on a commit where many columns failed, or its log says so
    broken: int = 0  # in streaks of three or more
    flaky: int = 0  # in shorter streaks, and passes on a second try

    @property
    def failures(self) -> int:
        """The failures of all kinds; a pass on a second try is none."""
        return self.runs - self.passed


def outages(columns: Iterable[tuple[str, Column]]) -> frozenset[int]:
    """Return the commits on which so many columns failed that it was hardly the code; columns by their workflow."""
    failing: defaultdict[int, list[str]] = defaultdict(list)
    for workflow, column in columns:
        for place, cell in enumerate(column):
            if cell is not None and cell.character in FAILED:
                failing[place].append(workflow)
    return frozenset(place for place, workflows in failing.items() if is_outage(workflows))


def is_outage(workflows: Sequence[str]) -> bool:
    """Whether so much failed on a commit that it was hardly the code, given by the workflow of each failing column.

    Where all of them are of one workflow, it may well be: what these jobs have in common is broken.
    """
    return len(workflows) >= OUTAGE_FROM and len(set(workflows)) > 1


def workflow_of(name: str, workflow: str) -> str:
    """Return the workflow that a column's jobs fail together with: that of a backend is in the column's name."""
    parts = NAMED_BY.get(workflow, 0)
    return " / ".join(name.split(" / ")[:parts]) if parts else workflow


def breakage(column: Column) -> Breakage | None:
    """Return since when a column is broken, None where it is not."""
    last = failing_since(column)
    if last is None or last.after is not State.BROKEN:
        return None
    failures = [cell for place, cell in _evidence(column) if cell.broken and place <= last.first_bad]
    return Breakage(
        first_bad=last.first_bad,
        last_good=last.last_good,
        failures=len(failures),
        same=_same(failures),
    )


def failing_since(column: Column) -> Change | None:
    """Return the change by which a column came to fail, as it still does; None where it passes."""
    last = None
    for change in changes(column) if not _passes(column) else ():
        last = change
    return None if last is None or last.after is State.OK else last


def flakes(column: Column) -> frozenset[int]:
    """Return the commits on which it was a flake: a pass on a second try, or a lone failure between two passes.

    Two failures in a row that are known to differ are both alone.
    """
    seen = [
        (place, cell.character) for place, cell in enumerate(column) if cell and cell.character in EVIDENCE
    ]
    text = "".join([character for _, character in seen])
    flakes: set[int] = set()
    for found in _FLAKE.finditer(text):
        places = [place for place, _ in seen[found.start() : found.end()]]
        if len(places) == 1 or not _same([cell for at in places if (cell := column[at])]):
            flakes.update(places)
    return frozenset(flakes)


def state(column: Column) -> State:
    """Return how a column stands now."""
    if is_stale(column):
        return State.UNKNOWN
    last = failing_since(column)
    return State.OK if last is None else last.after


def is_stale(column: Column) -> bool:
    """Whether none of the newest commits has a result."""
    return not any(cell is not None and cell.character in EVIDENCE for cell in column[:STALE_AFTER])


def _passes(column: Column) -> bool:
    """Whether the newest result is a clean pass: whatever was before, nothing is wrong now."""
    for cell in column:
        if cell is not None and cell.character in EVIDENCE:
            return cell.character == SUCCESS
    return True


def changes(column: Column) -> Iterator[Change]:
    """Yield every change of a column's state, oldest first. A pass on a second try mends nothing that is broken.

    Failures in a row with a test in common, which the pass before them had not, need no third one to be a breakage.
    One that is known to differ from the one before it is suspected of its own: a change from suspect to suspect.
    """
    if not any(cell is not None and cell.character in FAILED for cell in column):
        return  # nearly all columns
    failures: list[int] = []
    now, good, before_streak = State.OK, None, None
    common: frozenset[str] = frozenset()  # tests that failed in all of these
    began, signature = 0, None  # the first of those that may be alike, and how these failed
    for place, cell in reversed(list(_evidence(column))):
        differs = False
        if cell.broken:
            before_streak = good if not failures else before_streak
            failures.append(place)
            tests = frozenset((cell.failed_tests or "").split(",")) - {""}
            common = common & tests if len(failures) > 1 else tests
            same_test = common and before_streak is not None and len(failures) >= SAME_TEST_AFTER
            broken = now is State.BROKEN or same_test or len(failures) >= BROKEN_AFTER
            after = State.BROKEN if broken else State.SUSPECT
            differs = not broken and bool(signature and cell.signature and cell.signature != signature)
            signature = cell.signature or signature
            if broken or len(failures) == 1:
                began = failures[0]
            elif differs:
                began = place
        elif cell.character == "F" and now is State.BROKEN:
            good = place
            continue
        else:
            after, good = State.OK, place
        if after is not now or differs:
            yield Change(place=place, before=now, after=after, first_bad=began, last_good=before_streak)
        now = after
        if after is State.OK:
            failures, signature = [], None


def reliability(column: Column, outage: Collection[int] = ()) -> Reliability:
    """Split a column's finished cells. A failure of the infrastructure neither extends nor ends a streak."""
    runs = passed = infra = broken = flaky = streak = 0
    for place, cell in _evidence(column):
        runs += 1
        if cell.infra or (cell.broken and place in outage):
            infra += 1
        elif cell.broken:
            streak += 1
        else:
            passed += 1
            flaky += cell.character == "F"
            broken, flaky, streak = *_ended(streak, broken, flaky), 0
    broken, flaky = _ended(streak, broken, flaky)
    return Reliability(runs=runs, passed=passed, infra=infra, broken=broken, flaky=flaky)


def _ended(streak: int, broken: int, flaky: int) -> tuple[int, int]:
    return (broken + streak, flaky) if streak >= BROKEN_AFTER else (broken, flaky + streak)


def _evidence(column: Column) -> Iterator[tuple[int, Cell]]:
    """Yield the cells that say something, newest first."""
    for place, cell in enumerate(column):
        if cell is not None and cell.character in EVIDENCE:
            yield place, cell


def _same(cells: Sequence[Cell]) -> bool:
    """Whether no two failures are known to differ; one without a log may be either."""
    return len({cell.signature for cell in cells if cell.signature}) <= 1
