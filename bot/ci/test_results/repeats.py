"""Whether a run repeats few tests many times: such runs say how often disabled tests fail, and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAST = 10  # repetitions of a test
SHARE = 0.9  # of all cases
_REPEAT = re.compile(r"(.*)\[\d+(?:-\d+)?\]", re.DOTALL)  # x[3], x[3-50]


def is_repeats(names: Iterable[str]) -> bool:
    """Whether nine of ten cases are one of ten or more repetitions of a test."""
    repeated: Counter[str] = Counter()
    count = 0
    for name in names:
        count += 1
        if name.endswith("]") and (found := _REPEAT.fullmatch(name)):
            repeated[found[1]] += 1
    many = sum(times for times in repeated.values() if times >= LEAST)
    return count > 0 and many >= SHARE * count
