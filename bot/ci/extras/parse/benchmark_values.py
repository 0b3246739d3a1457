"""Names and numbers of benchmarks, however they are written."""

from __future__ import annotations

import statistics
from typing import Any

from bot.ci.extras.parse.json_values import LeftOut, as_text

NAME_MOST = 160  # bytes
SECOND = 2


def require_name(value: Any, called: str) -> str:
    """Return a text that is not empty; raises LeftOut."""
    if not (text := one_line(value, called)):
        raise LeftOut(f"{called} is missing")
    return text


def one_line(value: Any, called: str) -> str:
    """Return a text without breaks; the empty text for none; raises LeftOut."""
    return " ".join(as_text(value, called, most=NAME_MOST).split())


def summarize(values: list[float]) -> dict[str, Any]:
    """Return what is kept of the values of one run; of none, where there is only a status."""
    return {
        "n": len(values),
        "median": statistics.median(values) if values else None,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "stdev": statistics.stdev(values) if len(values) >= SECOND else None,
    }
