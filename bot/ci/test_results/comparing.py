"""What changed between two sides, test by test: a commit and the one before it, say.

Only job families that ran on both sides are compared: a family that did not run says nothing of its tests. Within a
side, a test that passed in any job of its family passes; re-runs are jobs of the same family.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.test_results.parse.block import FAILING, Code, code_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.ci.test_results.parse.block import Block

MOST = 1_000  # tests of one kind that are named; all are counted
PASSED_AT_ONCE = code_of(Code.PASSED, 1)
SKIPPED = frozenset({Code.SKIPPED})


class Change(StrEnum):
    """How a test differs, the most interesting first."""

    NEWLY_FAILING = "newly_failing"
    STILL_FAILING = "still_failing"
    FIXED = "fixed"
    NEW = "new"  # not on the base
    GONE = "gone"  # only on the base
    NEWLY_SKIPPED = "newly_skipped"  # it passed on the base


class Changed(NamedTuple):
    """A test that differs, in a family of jobs."""

    family: str
    test_id: int


@dataclass(kw_only=True)
class Tests:
    """The tests of one family on one side: ids of all, of those that failed, of those that were skipped."""

    known: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    skipped: set[int] = field(default_factory=set)

    def add(self, block: Block) -> None:
        """Add what a job says."""
        failed, skipped, others = set(), set(), set()
        for test_id, code in zip(block.ids, block.codes, strict=True):
            if code == PASSED_AT_ONCE:  # nearly all
                continue
            outcome = code & 0xF
            if outcome in FAILING:
                failed.add(test_id)
            elif outcome in SKIPPED:
                skipped.add(test_id)
            else:
                others.add(test_id)
        ids = set(block.ids)
        passed = ids - failed - skipped | others
        # looked up one by one: a set of all that passed before would be as large as the family, for each of its jobs
        failed -= {one for one in failed if self._has_passed(one)}
        skipped -= {one for one in skipped if self._has_passed(one)}
        self.failed = (self.failed | failed) - passed
        self.skipped = (self.skipped | skipped) - passed - self.failed
        self.known |= ids

    def _has_passed(self, test_id: int) -> bool:
        return test_id in self.known and test_id not in self.failed and test_id not in self.skipped

    @property
    def passed(self) -> set[int]:
        """Those that passed, or failed as expected."""
        return self.known - self.failed - self.skipped


Side = dict[str, Tests]  # by family


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What changed, counted, and the first tests of every kind."""

    counts: Mapping[Change, int]
    changed: Mapping[Change, list[Changed]]
    only_head: list[str]  # families that did not run on the base
    only_base: list[str]
    families: int  # compared
    tests: int  # compared, on the head


def add(side: Side, jobs: Iterable[tuple[str, Block]]) -> Side:
    """Add jobs to a side, by their families and blocks; returns the side."""
    for family, block in jobs:
        side.setdefault(family, Tests()).add(block)
    return side


def compare(base: Side, head: Side, *, most: int = MOST) -> Comparison:
    """Return what changed from base to head."""
    counts = dict.fromkeys(Change, 0)
    changed: dict[Change, list[Changed]] = {change: [] for change in Change}
    both = sorted(base.keys() & head.keys())
    for family in both:
        for change, ids in _changes(base[family], head[family]).items():
            counts[change] += len(ids)
            left = most - len(changed[change])
            changed[change] += [Changed(family, test_id) for test_id in sorted(ids)[: max(left, 0)]]
    return Comparison(
        counts=counts,
        changed=changed,
        only_head=sorted(head.keys() - base.keys()),
        only_base=sorted(base.keys() - head.keys()),
        families=len(both),
        tests=sum(len(head[family].known) for family in both),
    )


def _changes(base: Tests, head: Tests) -> dict[Change, set[int]]:
    was_passing = base.passed
    return {
        Change.NEWLY_FAILING: head.failed & base.known - base.failed,
        Change.STILL_FAILING: head.failed & base.failed,
        Change.FIXED: base.failed & head.passed,
        Change.NEW: head.known - base.known,
        Change.GONE: base.known - head.known,
        Change.NEWLY_SKIPPED: head.skipped & was_passing,
    }
