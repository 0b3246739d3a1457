"""Sums over the trusted runs of a day: how often each of some tests ran and how it ended, by group of environments.

Adding a job and taking it away again leaves what was there before; the order of jobs does not matter. A page holds the
tests of 4,096 neighbouring ids. Stored: zlib of MessagePack, a group's name to its sums: positions of the tests (as
differences), runs and time as arrays, and what did not simply pass by position.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bot.ci.test_results.parse.block import FLAKY, NO_TIME, Code, cases, outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

BITS = 12
SIZE = 1 << BITS  # tests of a page
UNIT = 10  # milliseconds: times are rounded to that
INFLATED_MOST = 64 * 1024 * 1024
FIELDS = {Code.FAILED: 1, Code.TIMED_OUT: 1, Code.ERROR: 2, Code.CRASHED: 2, Code.SKIPPED: 4}


class Counts(NamedTuple):
    """What trusted runs said of a test; a flaky run is counted by how it ended, too."""

    runs: int = 0
    failed: int = 0
    erred: int = 0
    flaky: int = 0
    skips: int = 0
    units: int = 0

    @property
    def passed(self) -> int:
        """Runs in which it passed, or failed as expected."""
        return self.runs - self.failed - self.erred - self.skips

    @property
    def time_ms(self) -> int:
        """The time of all runs."""
        return self.units * UNIT

    def plus(self, other: Counts) -> Counts:
        """Return the sum of both."""
        return Counts(*map(sum, zip(self, other, strict=True)))


class _Group(msgspec.Struct, array_like=True):
    positions: bytes  # u16, differences
    runs: bytes  # u32
    units: bytes  # u32
    rest: dict[int, tuple[int, int, int, int]]  # position -> failed, errors, flaky, skipped


_GROUP = msgspec.msgpack.Decoder(_Group)


Sums = dict[int, list[int]]  # position in the page -> the fields of Counts
Changes = dict[int, dict[str, Sums]]  # page -> group -> what is added


def page_of(test_id: int) -> int:
    """Return the page of a test."""
    return test_id >> BITS


def add(changes: Changes, block: bytes | None, group: str, sign: int) -> None:
    """Add what a job's block says, or with sign -1 take it away."""
    for test_id, code, time in cases(block):
        sums = changes[test_id >> BITS][group][test_id & SIZE - 1]
        sums[0] += sign
        field = FIELDS.get(outcome_of(code))
        if field:
            sums[field] += sign
        if code & FLAKY:
            sums[3] += sign
        if time != NO_TIME:
            sums[5] += sign * ((time + UNIT // 2) // UNIT)


def no_changes() -> Changes:
    """Return an empty collection of changes."""
    return defaultdict(lambda: defaultdict(lambda: defaultdict(lambda: [0] * 6)))


def changed(stored: bytes | None, changes: Mapping[str, Sums]) -> bytes | None:
    """Return a page with changes; None where nothing is left of it."""
    groups = _groups(stored)
    for group, added in changes.items():
        sums = _decoded(groups[group]) if group in groups else {}
        for position, values in added.items():
            before = sums.get(position)
            sums[position] = (
                values if before is None else [a + b for a, b in zip(before, values, strict=True)]
            )
        kept = {position: values for position, values in sums.items() if values[0] > 0}
        if kept:
            groups[group] = _encoded(kept)
        else:
            groups.pop(group, None)
    ordered = {group: groups[group] for group in sorted(groups)}
    return zlib.compress(msgspec.msgpack.encode(ordered), 6) if ordered else None


def counts_of_tests(stored: bytes, test_ids: Iterable[int]) -> Iterator[tuple[int, str, Counts]]:
    """Yield what a page says of some of its tests: test, group, counts."""
    wanted = [(one, one & SIZE - 1) for one in test_ids]
    for name, encoded in _groups(stored).items():
        group = _GROUP.decode(encoded)
        positions = list(accumulate(_array("H", group.positions)))
        runs, units = _array("I", group.runs), _array("I", group.units)
        for test_id, position in wanted:
            at = bisect_left(positions, position)
            if at < len(positions) and positions[at] == position:
                rest = group.rest.get(position, (0, 0, 0, 0))
                yield test_id, name, Counts(runs[at], *rest, units[at])


def _groups(stored: bytes | None) -> dict[str, msgspec.Raw]:
    if stored is None:
        return {}
    content = zlib.decompressobj().decompress(stored, INFLATED_MOST)
    return msgspec.msgpack.decode(content, type=dict[str, msgspec.Raw])


def _decoded(encoded: msgspec.Raw) -> Sums:
    group = _GROUP.decode(encoded)
    positions = accumulate(_array("H", group.positions))
    sums = {
        position: [runs, 0, 0, 0, 0, units]
        for position, runs, units in zip(
            positions, _array("I", group.runs), _array("I", group.units), strict=True
        )
    }
    for position, rest in group.rest.items():
        sums[position][1:5] = rest
    return sums


def _encoded(sums: Sums) -> msgspec.Raw:
    order = sorted(sums)
    deltas = (after - before for before, after in zip([0, *order], order, strict=False))
    group = _Group(
        positions=_bytes("H", deltas),
        runs=_bytes("I", (sums[one][0] for one in order)),
        units=_bytes("I", (max(sums[one][5], 0) for one in order)),
        rest={one: (rest[0], rest[1], rest[2], rest[3]) for one in order if any(rest := sums[one][1:5])},
    )
    return msgspec.Raw(msgspec.msgpack.encode(group))


def _array(kind: str, content: bytes) -> array[int]:
    found: array[int] = array(kind, content)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _bytes(kind: str, numbers: Iterable[int]) -> bytes:
    found = array(kind, numbers)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()
