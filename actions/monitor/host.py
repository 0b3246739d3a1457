"""How busy is this machine, against what its container may use? By /proc and cgroup v2, elsewhere by psutil."""

from __future__ import annotations

import importlib
import os
import re
import time
from pathlib import Path
from typing import Any

FRESH = 3  # samples in which a process may still become another program
AGAIN = 15  # then it is looked at every so many samples
LENGTH_MOST = 512
SECRET = re.compile(
    r"gh[pousr]_[A-Za-z0-9_.\-]{36,}|github_pat_\w{22,}|AKIA[0-9A-Z]{16}"
    r"|eyJ[\w\-]{8,}\.eyJ[\w\-]{8,}\.[\w\-]{16,}"
)


class Machine:
    """Processor, memory and Python commands."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.proc = root / "proc"
        self.psutil: Any = None if (self.proc / "stat").exists() else importlib.import_module("psutil")
        groups = [] if self.psutil else _groups(root)
        self.memory_group, self.memory_limit = _limited(groups, "memory.max")
        self.cpu_group, quota = _limited(groups, "cpu.max")
        self.cores = _cores()
        self.quota = quota  # cores
        self.memory_basis = "cgroup" if self.memory_group else "host"
        self.cpu_basis = "cgroup" if self.cpu_group else "host"
        self._before: tuple[float, float] | None = None
        self._known: dict[str, tuple[int, str]] = {}

    def cpu(self) -> float | None:
        """Return the percent in use since the last call."""
        if self.psutil:
            used = float(self.psutil.cpu_percent())
            first, self._before = self._before is None, (0.0, 0.0)
            return None if first else used
        now = self._group_times() if self.cpu_group else self._host_times()
        before, self._before = self._before, now
        if before is None or now[1] <= before[1]:
            return None
        return max(0.0, 100 * (now[0] - before[0]) / (now[1] - before[1]))

    def memory(self) -> float:
        """Return the percent in use."""
        if self.psutil:
            return float(self.psutil.virtual_memory().percent)
        if self.memory_group:
            used = int((self.memory_group / "memory.current").read_text())
            cache = _fields(self.memory_group / "memory.stat").get("inactive_file", 0)
            return 100 * max(0, used - cache) / self.memory_limit
        fields = _fields(self.proc / "meminfo")
        return 100 * (1 - fields["MemAvailable:"] / fields["MemTotal:"])

    def commands(self) -> set[str]:
        """Return the command lines of the Python processes, but this one."""
        if self.psutil:
            found = self.psutil.process_iter(["pid", "cmdline"])
            return {
                command
                for one in found
                if one.info["pid"] != os.getpid() and (command := _command(one.info["cmdline"] or []))
            }
        known = {}
        own = str(os.getpid())
        for pid in os.listdir(self.proc):  # noqa: PTH208 - names only, many times a minute
            if pid.isdigit() and pid != own:
                seen, command = self._known.get(pid, (0, ""))
                if seen < FRESH or seen % AGAIN == 0:
                    command = self._read(pid)
                known[pid] = seen + 1, command
        self._known = known
        return {command for _, command in known.values() if command}

    def _read(self, pid: str) -> str:
        try:
            with open(f"{self.proc}/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - the cheapest way
                words = file.read(65_536)
        except OSError:
            return ""  # it has ended
        return _command(words.decode(errors="replace").rstrip("\0").split("\0"))

    def _host_times(self) -> tuple[float, float]:
        with open(f"{self.proc}/stat", "rb") as file:  # noqa: PTH123
            times = [int(word) for word in file.readline().split()[1:9]]
        return float(sum(times) - times[3] - times[4]), float(sum(times))

    def _group_times(self) -> tuple[float, float]:
        assert self.cpu_group
        return _fields(self.cpu_group / "cpu.stat")["usage_usec"] / 1e6, time.monotonic() * self.quota


def _command(words: list[str]) -> str:
    """Return a Python process's command line without the folder of its interpreter and without tokens."""
    program = words[0].rsplit("/", 1)[-1] if words else ""
    if not program.startswith("python"):
        return ""
    return SECRET.sub("***", " ".join([program, *words[1:]]))[:LENGTH_MOST]


def _groups(root: Path) -> list[Path]:
    """Return the folders of our cgroup and of those around it."""
    top = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    path = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    inner = top / path if ".." not in path else top
    return [one for one in (inner, *inner.parents) if one == top or top in one.parents]


def _limited(groups: list[Path], name: str) -> tuple[Path | None, float]:
    """Return the group with the lowest limit of this kind, and that limit."""
    found: tuple[Path | None, float] = None, 0.0
    for group in groups:
        try:
            words = (group / name).read_text().split()
        except OSError:
            continue
        if words and words[0].isdigit():
            limit = int(words[0]) / (int(words[1]) if len(words) > 1 else 1)
            if limit > 0 and (found[0] is None or limit < found[1]):
                found = group, limit
    return found


def _fields(path: Path) -> dict[str, int]:
    with path.open() as file:
        return {words[0]: int(words[1]) for words in map(str.split, file) if len(words) > 1}


def _cores() -> int | None:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count()
