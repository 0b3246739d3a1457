"""Is less better, or more? And is it a count, of which a hundredth is a change? By the name of a metric. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from bot.core import setting_types
from bot.core.settings import option

Direction = Literal["lower", "higher"]
Directions = tuple[tuple[str, Direction], ...]  # by globs, the first that matches
HIGHER = (
    "*speedup*", "*throughput*", "*per_sec*", "*/s", "*tps*", "*qps*", "*flops*", "*bandwidth*", "*gbps*",
    "*compression_ratio*", "*accuracy*", "*hit_rate*", "*mfu*", "*score*", "*utilization*",
)  # fmt: skip
LOWER = (
    "*latency*", "*time*", "*seconds*", "*duration*", "*_ms*", "*_us*", "*_ns*", "*ms)", "*memory*", "*_mb*",
    "*bytes*", "*size*", "*count*", "*graph_breaks*", "*loss*", "*error*",
)  # fmt: skip
COUNTS = ("*count*",)
LEAST, LEAST_OF_COUNTS = 0.05, 0.01  # shares: a smaller change is no word worth
SPEEDUP = "*speedup*"


def direction(metric: str, chosen: Directions = ()) -> Direction | None:
    """Return what is better of a metric; None where its name does not tell.

    >>> direction("abs_latency"), direction("speedup"), direction("frobs")
    ('lower', 'higher', None)
    """
    name = metric.casefold()
    for glob, better in chosen:
        if fnmatchcase(name, glob.casefold()):
            return better
    if any(fnmatchcase(name, glob) for glob in HIGHER):
        return "higher"
    return "lower" if any(fnmatchcase(name, glob) for glob in LOWER) else None


def least_change(metric: str) -> float:
    """Return the share from which a change of a metric counts, if it is not noise.

    >>> least_change("compile_time_instruction_count")
    0.01
    """
    is_count = any(fnmatchcase(metric.casefold(), glob) for glob in COUNTS)
    return LEAST_OF_COUNTS if is_count else LEAST


def is_worse(metric: str, by: float, chosen: Directions = ()) -> bool | None:
    """Whether a change makes a metric worse; None where its name does not tell."""
    better = direction(metric, chosen)
    return None if better is None else (by > 0) == (better == "lower")


def words(metric: str, by: float, chosen: Directions = ()) -> str:
    """Return a change in words.

    >>> words("abs_latency", 0.07), words("throughput", -0.25), words("instruction_count", 0.0109)
    ('7 % slower', '25 % worse', '1.1 % worse')
    """
    percent = abs(by) * 100
    amount = f"{percent:.1f} %" if percent < 5 else f"{percent:.0f} %"
    worse = is_worse(metric, by, chosen)
    if worse is None:
        return f"{amount} {'more' if by > 0 else 'less'}"
    timed = any(part in metric.casefold() for part in ("latency", "time", "seconds", "duration"))
    timed = timed and "count" not in metric.casefold()
    return f"{amount} {('slower' if worse else 'faster') if timed else ('worse' if worse else 'better')}"


def parse_directions(text: str) -> Directions:
    """Read the setting: a JSON object from globs over metrics to `lower` or `higher`; raises ValueError."""
    try:
        given = msgspec.json.decode(text, type=dict[str, Direction])
    except msgspec.MsgspecError as error:
        raise ValueError(
            f'write a table from metrics to what is better, as in {{"tok*": "higher"}}: {error}'
        ) from None
    return tuple(given.items())


def format_directions(directions: Directions) -> str:
    """Return directions as the setting is written."""
    return msgspec.json.encode(dict(directions)).decode()


@dataclass(frozen=True, kw_only=True)
class BenchmarkSettings:
    """How benchmarks are judged."""

    ci_benchmark_directions: Directions = option(  # noqa: RUF009 - a field, as the others
        "What is better of a metric whose name does not tell: a table from globs to lower or higher, such as "
        '{"tok*": "higher"}; the first that matches decides.',
        parse_directions,
        default=(),
        show=format_directions,
    )
    ci_benchmark_comment: str = option(
        "Whether the comment on a pull request tells which benchmarks it changed: never, changes (only then).",
        setting_types.one_of("never", "changes"),
        default="never",
    )
