"""Which series are shown, and what are they called there?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SHOWN_MOST = 6  # at once
FIELDS = {
    "util_percent": "util",
    "mem_util_percent": "mem_bandwidth",
    "allocated_mem_percent": "allocated_mem_percent",
}


class Shown(NamedTuple):
    """A series that can be charted: its short name, and the ids of its two halves."""

    name: str  # such as gpu_0_util
    most: str  # id of the maxima
    mean: str  # id of the means; the log may not have it


def charted(ids: Iterable[str]) -> list[Shown]:
    """Return what can be charted of a log's series, in their order; a second accelerator of one place gets a number."""
    found: dict[str, Shown] = {}
    for series in ids:
        name = _name(series)
        if name is None:
            continue
        numbered, at = name, 1
        while numbered in found:
            at += 1
            numbered = f"{name}_{at}"
        found[numbered] = Shown(numbered, series, series.removesuffix("max") + "avg")
    return list(found.values())


def chosen(known: Sequence[Shown], asked: str, means: Mapping[str, float]) -> list[Shown]:
    """Return the series asked for, by name with commas between; else cpu, memory and of accelerators the worst.

    These are the one that is used least and the one whose memory is fullest, by the `means` of series.
    """
    by_name = {one.name: one for one in known}
    names = [name for name in dict.fromkeys(asked.split(",")) if name in by_name]
    if not names:
        names = [name for name in ("cpu", "memory") if name in by_name]
        for field, sign in (("util_percent", -1), ("allocated_mem_percent", 1)):
            of_kind = [one for one in known if one.most.endswith(f"|{field}|max")]
            if of_kind:
                names.append(max(of_kind, key=lambda one: sign * means.get(one.most, 0.0)).name)
    return [by_name[name] for name in names[:SHOWN_MOST]]


def _name(series: str) -> str | None:
    parts = series.split("|")
    if parts in (["cpu", "max"], ["memory", "max"]):
        return parts[0]
    if len(parts) < 4 or parts[0] != "gpu_usage" or parts[-1] != "max" or parts[-2] not in FIELDS:
        return None
    return f"gpu_{parts[1]}_{FIELDS[parts[-2]]}"
