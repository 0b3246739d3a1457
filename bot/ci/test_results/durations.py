"""Has a test become slower? By its newest passes and those before. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPARED = 20  # passes on each side
FACTOR = 1.5
LEAST = 5_000  # milliseconds more


class Slower(NamedTuple):
    """The median time before and now, in milliseconds."""

    before_ms: int
    now_ms: int


def slower(times: Sequence[int]) -> Slower | None:
    """Return by how much a test became slower; `times` are milliseconds of trusted passes, the newest first.

    None where it did not, or where there are fewer than forty of them.
    """
    if len(times) < 2 * COMPARED:
        return None
    now = statistics.median(times[:COMPARED])
    before = statistics.median(times[COMPARED : 2 * COMPARED])
    if now < FACTOR * before or now - before < LEAST:
        return None
    return Slower(round(before), round(now))
