"""Has a suite lost tests, or does it skip many more than before? Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST = 5  # tests: of fewer, a share says nothing
FIFTH = 5  # what is told is a fifth, of the tests or as a difference of shares


class Kind(StrEnum):
    """What became less."""

    LOST = "lost"  # a fifth of the tests, or more, no longer runs
    SKIPPED = "skipped"  # the share of skipped tests rose by a fifth of all, or more
    GONE = "gone"  # tests that ran before and are not there any more, whether many or few


class Counts(NamedTuple):
    """Tests that a run reported, and those of them that were skipped."""

    tests: int = 0
    skipped: int = 0


def kinds(before: Counts, now: Counts) -> list[Kind]:
    """Return what a suite or job lost from one complete run to another.

    >>> kinds(Counts(100, 10), Counts(80, 9))
    [<Kind.LOST: 'lost'>]
    >>> kinds(Counts(100, 10), Counts(100, 30))
    [<Kind.SKIPPED: 'skipped'>]
    >>> kinds(Counts(100, 10), Counts(81, 25))
    []
    """
    if before.tests < LEAST:
        return []
    found = [Kind.LOST] if now.tests * FIFTH <= before.tests * (FIFTH - 1) else []
    risen = now.skipped * before.tests - before.skipped * now.tests
    if now.tests >= LEAST and risen * FIFTH >= now.tests * before.tests:
        found.append(Kind.SKIPPED)
    return found


def losses_of_suites(
    before: Mapping[int, Counts], now: Mapping[int, Counts], *, most: int
) -> list[tuple[int, Kind]]:
    """Return which suites lost what, those that lost the most tests first."""
    found = [
        (suite, kind) for suite, counts in before.items() for kind in kinds(counts, now.get(suite, Counts()))
    ]
    return sorted(found, key=lambda one: (now.get(one[0], Counts()).tests - before[one[0]].tests, one))[:most]
