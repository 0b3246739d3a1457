"""What a process and its descendants use: processor time and memory, as Linux counts them."""

from __future__ import annotations

import os
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
CHILDREN_TIME = slice(13, 15)  # cutime and cstime, after the name in /proc/PID/stat
KINDS = {"Rss": "resident_mb", "Pss": "pss_mb"}


def cpu_of(pid: int) -> float:
    """Processor seconds a process has used so far."""
    return time.clock_gettime(~pid << 3 | 2)  # Linux's clock of another process


def family(pid: int) -> list[int]:
    """A process and its descendants that are alive, parents before children."""
    found = [pid]
    for one in found:
        for task in _listed(f"/proc/{one}/task"):
            found += [int(word) for word in _read(f"/proc/{one}/task/{task}/children").split()]
    return found


def family_cpu(pid: int) -> float:
    """Processor seconds of a process, of its descendants, and of those of them that have ended."""
    return sum(_with_ended(one) for one in family(pid))


def family_memory(pid: int) -> dict[str, float]:
    """What a process and its descendants occupy, in MB.

    `resident_mb` counts a page that several share once for each, `pss_mb` once in all: that is what the machine lacks.
    """
    sums = dict.fromkeys(KINDS.values(), 0.0)
    for one in family(pid):
        for line in _read(f"/proc/{one}/smaps_rollup").splitlines():
            name, _, rest = line.partition(":")
            if name in KINDS:
                sums[KINDS[name]] += int(rest.split()[0]) / 1024
    return {name: round(size, 1) for name, size in sums.items()}


def _with_ended(pid: int) -> float:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if not fields:
        return 0.0
    try:
        return cpu_of(pid) + sum(int(ticks) for ticks in fields[CHILDREN_TIME]) / TICKS
    except OSError:
        return 0.0


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return ""


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208 - of a path that may vanish
    except FileNotFoundError:
        return []
