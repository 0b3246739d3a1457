"""When did each command run? Pieces of the times at which it was seen, split where it was not seen for long."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.utilization.parse.usage_log import UsageLog

LEVEL = "CMD_PYTHON"
GAP = 60  # seconds; a longer one splits
# what runs beside the tests in most jobs and is of no interest
BACKGROUND = re.compile(r"tools\.stats\.monitor|\bpip3? install|filter_test_configs\.py")
PYTHON = re.compile(r"^(?:\S*/)?python[\d.]*\s+(?:-m\s+)?")
PATHS = re.compile(r"(?<!\S)/(?:[^\s/]+/)+")
SHARD = re.compile(r"\s*--shard-id(?:=|\s+)\S+")


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of time in which a command ran."""

    level: str = LEVEL
    name: str
    start_at: int
    end_at: int  # when it was last seen; of a single sighting, the same as start_at
    extra_info: dict[str, Any] = {}

    @property
    def length(self) -> int:
        """Return its seconds."""
        return self.end_at - self.start_at


def find_segments(log: UsageLog, gap: int = GAP) -> list[Segment]:
    """Return the segments of every Python command, commands in the order they were first seen."""
    seen: dict[int, list[int]] = {}
    for at, running in zip(log.timestamps, log.running, strict=True):
        for number in running:
            if log.commands[number].startswith("python"):
                seen.setdefault(number, []).append(at)
    return [
        Segment(name=log.commands[number], start_at=first, end_at=last)
        for number, times in seen.items()
        for first, last in _pieces(times, gap)
    ]


def _pieces(times: Sequence[int], gap: int) -> list[tuple[int, int]]:
    pieces, first, last = [], times[0], times[0]
    for at in times:
        if at - last > gap:
            pieces.append((first, last))
            first = at
        last = at
    return [*pieces, (first, last)]


def shown_name(command: str) -> str:
    """Return what of a command is worth reading."""
    return PATHS.sub("", SHARD.sub("", PYTHON.sub("", command))).strip() or command


def in_background(command: str) -> bool:
    """Say whether a command is not what the job is about."""
    return BACKGROUND.search(command) is not None
