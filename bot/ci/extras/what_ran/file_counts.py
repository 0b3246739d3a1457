"""Counts of tests by file, and how they differ from those of another run. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.test_results.parse.block import FAILING, NO_TIME, Code, outcome_of
from bot.ci.test_results.parse.names import without_ending

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.ci.test_results.parse.block import Block

SLOWER, SLOWER_MS = 1.5, 30_000  # times as long, and so much longer


class Change(StrEnum):
    """How a file differs from the newest trusted run of the same jobs."""

    NEW = "new"
    GONE = "gone"
    LEFT_OUT = "left_out"  # on purpose, by selection
    FEWER = "fewer"
    SLOWER = "slower"
    SAME = "same"


ORDER = (Change.GONE, Change.FEWER, Change.LEFT_OUT, Change.SLOWER, Change.NEW, Change.SAME)


class FileCount(NamedTuple):
    """The tests of a file."""

    tests: int = 0
    successes: int = 0
    skipped: int = 0
    failures: int = 0
    errors: int = 0
    time_ms: int = 0

    def plus(self, other: FileCount) -> FileCount:
        """Return the sum of both."""
        return FileCount(*(one + more for one, more in zip(self, other, strict=True)))

    @property
    def ran(self) -> int:
        """Those that were not skipped."""
        return self.tests - self.skipped


class FileLine(NamedTuple):
    """A file, in this run and usually."""

    file: str
    now: FileCount
    usual: FileCount
    change: Change


def add_up(counts: Iterable[tuple[str, FileCount]]) -> dict[str, FileCount]:
    """Return the sums by file."""
    found: dict[str, FileCount] = {}
    for file, count in counts:
        found[file] = found.get(file, FileCount()).plus(count)
    return found


def count_block(block: Block, file_of: Mapping[int, str]) -> dict[str, FileCount]:
    """Return the counts of a job's block; tests of which the file is no longer known are left out."""
    return add_up(
        (file_of[test_id], _count(code, time))
        for test_id, code, time in zip(block.ids, block.codes, block.times, strict=True)
        if test_id in file_of
    )


def _count(code: int, time: int) -> FileCount:
    outcome = outcome_of(code)
    failed = outcome in FAILING and outcome != Code.ERROR
    return FileCount(
        tests=1,
        successes=int(outcome not in FAILING and outcome != Code.SKIPPED),
        skipped=int(outcome == Code.SKIPPED),
        failures=int(failed),
        errors=int(outcome == Code.ERROR),
        time_ms=0 if time == NO_TIME else time,
    )


def compare(
    now: Mapping[str, FileCount], usual: Mapping[str, FileCount], left_out: Iterable[str]
) -> list[FileLine]:
    """Return every file, what is missing first; `left_out` are names without their ending."""
    absent = set(left_out)
    nothing = FileCount()
    lines = [
        FileLine(
            file,
            mine := now.get(file, nothing),
            known := usual.get(file, nothing),
            _change(file, mine, known, absent),
        )
        for file in {*now, *usual}
    ]
    return sorted(lines, key=lambda one: (ORDER.index(one.change), one.now.ran - one.usual.ran, one.file))


def _change(file: str, now: FileCount, usual: FileCount, absent: set[str]) -> Change:
    if not now.tests:
        return Change.LEFT_OUT if without_ending(file) in absent else Change.GONE
    if not usual.tests:
        return Change.NEW
    if now.ran * 2 < usual.ran:
        return Change.FEWER
    slower = now.time_ms > usual.time_ms * SLOWER and now.time_ms - usual.time_ms > SLOWER_MS
    return Change.SLOWER if slower else Change.SAME
