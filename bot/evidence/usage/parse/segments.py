"""When each command ran, which ran at the same time, and how much memory each needed when it was alone.

A segment is a piece of the times at which a command was seen, split where it was not seen for long.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from bot.evidence.usage.parse.summary import MEMORY, time_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.evidence.usage.parse.usage_log import UsageLog

SEGMENT_LEVEL = "CMD_PYTHON"
GAP = 60  # seconds; a longer one splits
# what runs beside the tests in most jobs and is of no interest
BACKGROUND = re.compile(r"tools\.stats\.monitor|\bpip3? install|filter_test_configs\.py")
PYTHON = re.compile(r"^(?:\S*/)?python[\d.]*\s+(?:-m\s+)?")
PATHS = re.compile(r"(?<!\S)/(?:[^\s/]+/)+")
SHARD = re.compile(r"\s*--shard-id(?:=|\s+)\S+")
PAIR_SECONDS = 30  # a shorter overlap is not worth a line
PAIRS_MOST = 50
SEGMENTS_MOST = 500  # the longest; pairs grow with the square


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of time in which a command ran."""

    level: str = SEGMENT_LEVEL
    name: str
    start_at: int
    end_at: int  # when it was last seen; of a single sighting, the same as start_at
    extra_info: dict[str, Any] = {}

    @property
    def length(self) -> int:
        """Return its seconds."""
        return self.end_at - self.start_at


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two commands that ran at the same time."""

    first: str
    second: str
    seconds: int


class CommandUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One command: the time it ran alone and beside others, and the most memory in use while it was alone."""

    command: str
    alone_s: float
    shared_s: float
    memory: float | None  # percent; None if it was never alone


def find_segments(log: UsageLog, gap: int = GAP) -> list[Segment]:
    """Return the segments of Python commands, in the order in which the commands were first seen."""
    seen: dict[int, list[int]] = {}
    for at, running in zip(log.timestamps, log.running, strict=True):
        for number in running:
            if log.commands[number].startswith("python"):
                seen.setdefault(number, []).append(at)
    return [
        Segment(name=log.commands[number], start_at=first, end_at=last)
        for number, times in seen.items()
        for first, last in _split_times(times, gap)
    ]


def _split_times(times: Sequence[int], gap: int) -> list[tuple[int, int]]:
    pieces, first, last = [], times[0], times[0]
    for at in times:
        if at - last > gap:
            pieces.append((first, last))
            first = at
        last = at
    return [*pieces, (first, last)]


def shown_name(command: str) -> str:
    """Return the part of a command that is worth reading."""
    return PATHS.sub("", SHARD.sub("", PYTHON.sub("", command))).strip() or command


def in_background(command: str) -> bool:
    """Say whether a command is not what the job is about."""
    return BACKGROUND.search(command) is not None


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """What ran at the same time."""

    most_at_once: int
    pairs: list[Pair]
    commands: list[CommandUsage]


def find_overlap(log: UsageLog, segments: Sequence[Segment]) -> Overlap:
    """Find what ran at the same time in a log, without what runs beside every job."""
    counted = [segment for segment in segments if not in_background(segment.name)]
    return Overlap(
        most_at_once=most_at_once(counted), pairs=find_pairs(counted), commands=command_usages(log)
    )


def most_at_once(segments: Sequence[Segment]) -> int:
    """Return how many segments overlap at the fullest second; both ends belong to a segment."""
    turns = sorted(
        [(segment.start_at, 0) for segment in segments] + [(segment.end_at, 1) for segment in segments]
    )
    running = most = 0
    for _, ends in turns:
        running += -1 if ends else 1
        most = max(most, running)
    return most


def find_pairs(segments: Sequence[Segment]) -> list[Pair]:
    """Return the commands that overlap longest."""
    longest = sorted(segments, key=lambda segment: -segment.length)[:SEGMENTS_MOST]
    ordered = sorted(longest, key=lambda segment: (segment.start_at, segment.end_at, segment.name))
    seconds: dict[tuple[str, str], int] = {}
    for at, segment in enumerate(ordered):
        for other in ordered[at + 1 :]:
            if other.start_at >= segment.end_at:
                break
            if other.name != segment.name:
                names = (min(segment.name, other.name), max(segment.name, other.name))
                shared = min(segment.end_at, other.end_at) - other.start_at
                seconds[names] = seconds.get(names, 0) + shared
    longest_pairs = sorted((-length, *names) for names, length in seconds.items() if length >= PAIR_SECONDS)
    return [
        Pair(first=first, second=second, seconds=-length)
        for length, first, second in longest_pairs[:PAIRS_MOST]
    ]


def command_usages(log: UsageLog) -> list[CommandUsage]:
    """Return the usage of each Python command, in the order in which they were first seen."""
    counted = [name.startswith("python") and not in_background(name) for name in log.commands]
    memory = log.series.get(MEMORY)
    alone: dict[int, float] = {}
    shared: dict[int, float] = {}
    most: dict[int, float] = {}
    for at, (seconds, running) in enumerate(zip(time_weights(log.timestamps)[0], log.running, strict=True)):
        numbers = [number for number in running if counted[number]]
        for number in numbers:
            into = alone if len(numbers) == 1 else shared
            into[number] = into.get(number, 0.0) + seconds
        if len(numbers) == 1 and memory and memory[at] == memory[at]:
            most[numbers[0]] = max(most.get(numbers[0], 0.0), memory[at])
    return [
        CommandUsage(
            command=log.commands[number],
            alone_s=alone.get(number, 0.0),
            shared_s=shared.get(number, 0.0),
            memory=most.get(number),
        )
        for number in sorted(alone.keys() | shared.keys())
    ]
