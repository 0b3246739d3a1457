"""The machine, its servers and the figures of a run, shared by the benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support.process_tree import cpu_of

HERE = Path(__file__).parent
LOAD = round(os.getloadavg()[0], 1)  # when the benchmark began
QUIET = 0.05  # of the machine's processors, that others may use before the figures are in doubt
COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


class Others:
    """What everything but the benchmark uses of the processors while it runs: figures would depend on it.

    Interrupts count as ours: on loopback they are the benchmark's own. Time that the host took away counts as others'.
    """

    def __init__(self) -> None:
        self._began, self._before = time.perf_counter(), self._used()
        self.apart = (
            0.0  # seconds used by what the benchmark started and does not wait for, a database for example
        )

    def share(self) -> float | None:
        """Return the part of all processors that others used so far; None where the system does not tell."""
        if self._before is None:
            return None
        took = (time.perf_counter() - self._began) * (os.cpu_count() or 1)
        return round(max(self._used() - self._before - self.apart, 0) / took, 3)

    @staticmethod
    def _used() -> float | None:
        stat = Path("/proc/stat")
        if not stat.exists():
            return None
        numbers = (int(word) for word in stat.read_text().split("\n", 1)[0].split()[1:])
        ticks = dict(zip(COLUMNS, numbers, strict=False))
        ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        used = sum(ticks[name] for name in ("user", "nice", "system", "steal")) / os.sysconf("SC_CLK_TCK")
        return used - sum(one.ru_utime + one.ru_stime for one in ours)


OTHERS = Others()


def describe() -> dict:
    """The machine, as far as figures depend on it."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load_before": LOAD,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "fsync_p99_ms": fsync_p99(),
    }


def fsync_p99(count: int = 200) -> float:
    """The disk's own price of durability: 4 KB written and synced, 99th percentile in milliseconds."""
    with tempfile.NamedTemporaryFile() as file:
        took = []
        for _ in range(count):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return round(sorted(took)[int(count * 0.99)] * 1000, 2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def median(values) -> float:
    return round(statistics.median(values), 1)


def figure(values, digits: int = 1) -> dict:
    """A figure of several rounds: their median, the least and the most."""
    values = list(values)
    return {
        "median": round(statistics.median(values), digits),
        "least": round(min(values), digits),
        "most": round(max(values), digits),
        "rounds": len(values),
    }


def ratio(ours, peers, digits: int = 2) -> dict:
    """The ratios round by round, as a figure."""
    return figure([one / other for one, other in zip(ours, peers, strict=True)], digits)


class Server:
    """A server process under measurement, ended by its own id."""

    def __init__(
        self,
        *command: str,
        port: int | None = None,
        says: str = "ready",
        core: int | None = None,
        environment: dict | None = None,
    ):
        """Start it, on one core where that is given; its first line begins with what it `says` once it answers."""
        with contextlib.suppress(ValueError):  # in a thread: then whoever started the thread cares
            signal.signal(signal.SIGTERM, _end)
        self.port = port or free_port()
        pinned = ["taskset", "-c", str(core)] if core is not None and shutil.which("taskset") else []
        words = [*pinned, *(word.replace("{port}", str(self.port)) for word in command)]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        if not self.process.stdout.readline().startswith(says):
            self.close()
            raise RuntimeError(f"{' '.join(words[:4])} did not start")

    def cpu(self) -> float:
        """CPU seconds used so far."""
        return cpu_of(self.process.pid)

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _end(number: int, _frame: object) -> None:
    """End as after an error: every server that was started is ended."""
    sys.exit(128 + number)


def ours(name: str, folder: str, database_url: str | None = None) -> list[str]:
    """The command of one of the servers beside this file."""
    command = [sys.executable, str(HERE / "servers.py"), name, "{port}", folder]
    return [*command, database_url] if database_url else command


def show(result: dict, *, as_json: bool, warn: bool = True) -> None:
    """Print a result as JSON, or as indented lines for people; and a warning where the machine was not quiet."""
    if warn:
        others = result["machine"]["used_by_others"] = OTHERS.share()
        if others is not None and others > QUIET:
            print(
                f"warning: others used {others:.0%} of this machine's processors meanwhile: compare ratios only",
                file=sys.stderr,
            )
    if as_json:
        print(json.dumps(result, indent=2))
        return
    for section, values in result.items():
        print(f"\n{section}")
        if isinstance(values, dict):
            for name, value in values.items():
                print(f"  {name:<60} {in_words(value)}")
        elif section == "reach":
            for line in values:
                print("  {name:<60} {target:<8} {met:<13} {measured}".format(**in_reach(line)))
        else:
            print(f"  {values}")


def in_words(value) -> str:
    """A figure as people read it."""
    if isinstance(value, dict) and {"median", "least", "most", "rounds"} <= value.keys():
        spread = " ({least:,} to {most:,}, {rounds} rounds)" if value["rounds"] > 1 else ""
        return ("{median:,}" + spread).format(**value)
    return str(value)


def in_reach(line: dict) -> dict:
    """A target as people read it."""
    met = {True: "met", False: "missed", None: "not measured"}[line["met"]]
    return line | {"met": met, "measured": "" if line["measured"] is None else in_words(line["measured"])}
