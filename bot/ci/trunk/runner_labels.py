"""The label that a job's runner is counted under, of the several that a job asks for."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from bot.ci.trunk import name_patterns
from bot.core import escaping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.settings import NamedPatterns

UNLABELLED = "unknown"
LABELS_MOST, LABEL_MOST = 10, 120  # labels of a job that are kept, characters of each
BETWEEN = ","  # no label has a comma: runners are given their labels separated by commas


def stored_labels(labels: Sequence[str]) -> str | None:
    """Return a job's labels as they are stored, None where it has none."""
    kept = (escaping.one_line(one.replace(BETWEEN, " "))[:LABEL_MOST] for one in labels[:LABELS_MOST])
    return BETWEEN.join(kept) or None


def choose_label(labels: Sequence[str], patterns: NamedPatterns = ()) -> str | None:
    """Return the label that a job is counted under, None where it has none.

    The first pattern that one of them matches names it; without one it is the second, since the first of several
    is less specific, as in `self-hosted, npu-8`.
    """
    for pattern, name in patterns:
        for label in labels:
            if found := name_patterns.compile_pattern(pattern).search(label):
                return escaping.one_line(found.expand(name))[:LABEL_MOST] or label
    return labels[1] if len(labels) > 1 else next(iter(labels), None)


@lru_cache(maxsize=2_000)
def counted_label(stored: str | None, patterns: NamedPatterns) -> str:
    """Return the label that a job with these stored labels is counted under."""
    return choose_label((stored or "").split(BETWEEN), patterns) or UNLABELLED
