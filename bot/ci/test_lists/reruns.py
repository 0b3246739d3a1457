"""How often disabled tests passed and failed when a job ran them over and over. Pure.

A case that was skipped with `{"num_green": 50, "num_red": 0}` as its message sums up such repetitions; repetitions that
are cases of their own, `x[3]` or `x[3-50]`, count for `x`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bot.ci.test_results.parse.block import FAILING, Code

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 1_000_000  # repetitions that a note may speak of
_REPEAT = re.compile(r"(.*)\[\d+(?:-\d+)?\]", re.DOTALL)


class Place(NamedTuple):
    """A test, by name."""

    name: str
    suite: str
    file: str


class Case(NamedTuple):
    """A case of such a job."""

    place: Place
    code: Code
    message: str  # of one that was skipped


class Reruns(NamedTuple):
    """How often a test passed and failed."""

    green: int
    red: int

    @property
    def flaky(self) -> bool:
        """Whether it is still not to be relied on: it failed, or was never seen to pass."""
        return self.red > 0 or self.green == 0


class _Note(msgspec.Struct):
    num_green: int
    num_red: int


_NOTE = msgspec.json.Decoder(_Note)


def count_reruns(cases: Iterable[Case]) -> dict[Place, Reruns]:
    """Return how often each test of a job passed and failed; tests that were only skipped are left out."""
    found: dict[Place, Reruns] = {}
    for case in cases:
        green, red = _said(case)
        if not green and not red:
            continue
        repeated = _REPEAT.fullmatch(case.place.name)
        place = case.place._replace(name=repeated[1]) if repeated else case.place
        before = found.get(place, Reruns(0, 0))
        found[place] = Reruns(before.green + green, before.red + red)
    return found


def _said(case: Case) -> tuple[int, int]:
    if case.code is not Code.SKIPPED:
        return (0, 1) if case.code in FAILING else (1, 0)
    try:
        note = _NOTE.decode(case.message.encode("utf-8", "replace"))
    except msgspec.DecodeError:
        return 0, 0
    return _bounded(note.num_green), _bounded(note.num_red)


def _bounded(count: int) -> int:
    return min(max(count, 0), MOST)
