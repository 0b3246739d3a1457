"""Which parts of a large archive have to be downloaded, so that only the wanted members are.

The file has the archive's size and, in their places, the bytes that came so far: its end, then all of its directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect.parse.artifact_kinds import name_matches
from bot.ci.collect.parse.contract import Ranges
from bot.ci.collect.parse.zip_directory import find_directory, read_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.ci.collect.parse.contract import Given

SLACK = 1024  # bytes between two members that are fetched along rather than asked for apart


def plan_ranges(given: Given) -> Ranges:
    """Return the parts that are missing; `options` says where the part begins that is there."""
    with given.path.open("rb") as file:
        place = find_directory(file)
        if place.start < given.options:
            return Ranges(directory=(place.start, given.options))
        entries = read_directory(file)
    wanted = [entry for entry in entries if name_matches(entry.name.casefold(), given.members)]
    return Ranges(members=list(_joined(sorted((entry.offset, entry.until) for entry in wanted))))


def _joined(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges, near ones as one."""
    begin, end = -1, -1
    for start, until in ranges:
        if begin >= 0 and start <= end + SLACK:
            end = max(end, until)
            continue
        if begin >= 0:
            yield begin, end
        begin, end = start, until
    if begin >= 0:
        yield begin, end
