"""Commands under a chart: in as few lanes as they need, each in the first that is free."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

LANES_MOST = 12
PACKED_MOST = 150  # pieces, the longest

Piece = tuple[str, int, int]  # name, start, end


class Placed(NamedTuple):
    """A piece and its lane, counted from 0."""

    lane: int
    piece: Piece


def pack(pieces: Iterable[Piece]) -> tuple[list[Placed], int]:
    """Return the pieces that have a place, by start, and how many others there are."""
    longest = sorted(pieces, key=lambda one: one[1] - one[2])
    free: list[int] = []  # when each lane is free again
    placed = []
    for piece in sorted(longest[:PACKED_MOST], key=lambda one: (one[1], one[2], one[0])):
        lane = next((at for at, end in enumerate(free) if end <= piece[1]), len(free))
        if lane == LANES_MOST:
            continue
        if lane == len(free):
            free.append(0)
        free[lane] = max(piece[2], piece[1] + 1)
        placed.append(Placed(lane, piece))
    return placed, len(longest) - len(placed)
