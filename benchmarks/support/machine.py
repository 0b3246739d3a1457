"""The machine, its servers and the figures of a run, shared by the benchmarks."""

from __future__ import annotations

import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support.load import pin

HERE = Path(__file__).parent
LOAD = os.getloadavg()[0]  # when the benchmark began: others' work, on which figures would depend
if 0.25 * (os.cpu_count() or 1) < LOAD:
    print(f"warning: this machine is busy (load {LOAD:.1f}): compare ratios only", file=sys.stderr)


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
        "load_before": round(LOAD, 1),
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


def cpu_of(pid: int) -> float:
    """CPU seconds a process has used so far."""
    return time.clock_gettime(~pid << 3 | 2)  # Linux's clock of another process


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
        self.port = port or free_port()
        words = [word.replace("{port}", str(self.port)) for word in command]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        if core is not None:
            pin(core, self.process.pid)
        if not self.process.stdout.readline().startswith(says):
            self.close()
            raise RuntimeError(f"{' '.join(words[:4])} did not start")

    def cpu(self) -> float:
        """CPU seconds used so far."""
        return cpu_of(self.process.pid)

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (line,) = [line for line in status if line.startswith("VmRSS")]
        return round(int(line.split()[1]) / 1024, 1)

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


def ours(name: str, folder: str, database_url: str | None = None) -> list[str]:
    """The command of one of the servers beside this file."""
    command = [sys.executable, str(HERE / "servers.py"), name, "{port}", folder]
    return [*command, database_url] if database_url else command


def show(result: dict, *, as_json: bool) -> None:
    """Print a result as JSON, or as indented lines for people."""
    if as_json:
        print(json.dumps(result, indent=2))
        return
    for section, values in result.items():
        print(f"\n{section}")
        if isinstance(values, dict):
            for name, value in values.items():
                print(f"  {name:<42} {value}")
        else:
            print(f"  {values}")
