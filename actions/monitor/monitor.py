"""Write down what this machine does while a job runs: processor, memory, accelerators and Python commands.

Every option may also come from the environment, as action.yml passes it: --log from INPUT_LOG and so on. Needs
Python 3.9 and nothing else; psutil is used where there is no /proc. Ends on SIGTERM or SIGINT, with the last record.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import devices
import host

VERSION = 1.5
EXAMPLES = """\
examples:
  monitor.py --log usage_log.txt                        whatever accelerator has its tool on the PATH
  monitor.py --log usage_log.txt --device npu-smi
  monitor.py --log usage_log.txt --device-command 'my-smi --json' --device-map map.json
"""


class Monitor:
    """Samples, and writes a record for every interval in which there were any."""

    def __init__(self, options: argparse.Namespace, log: IO[str]) -> None:
        self.options = options
        self.log = log
        self.stopped = threading.Event()
        self.machine = host.Machine(options.root)
        self.devices = devices.reader(options)
        self.cpu: list[float] = []
        self.memory: list[float] = []
        self.commands: set[str] = set()
        self.errors: list[str] = []

    def run(self) -> None:
        """Sample until stopped."""
        self.devices.start()
        self._write(self._metadata())
        began = time.monotonic()
        record_at = began + self.options.log_interval
        sample_at = began
        try:
            while not self.stopped.wait(max(0.0, sample_at - time.monotonic())):
                sample_at = max(sample_at + self.options.interval, time.monotonic())
                self._sample()
                if time.monotonic() >= record_at:
                    record_at = time.monotonic() + self.options.log_interval
                    self._record()
            self._record()
        finally:
            self.devices.stop()

    def _sample(self) -> None:
        try:
            cpu, memory = self.machine.cpu(), self.machine.memory()
            self.commands |= self.machine.commands()
        except (OSError, ValueError, KeyError, IndexError) as error:
            self.errors.append(f"{type(error).__name__}: {error}"[:500])
            return
        if cpu is not None:  # the first sample has nothing to compare with
            self.cpu.append(cpu)
        self.memory.append(memory)

    def _record(self) -> None:
        """Write what was sampled since the last record; nothing where nothing was."""
        began = time.perf_counter()
        usage, troubles = self.devices.taken()
        record: dict[str, Any] = {"level": "record", "timestamp": int(time.time())}
        if self.memory:
            record["data"] = {"cpu": _stats(self.cpu), "memory": _stats(self.memory), "gpu_usage": usage}
            record["cmd_names"] = sorted(self.commands)
            record["error"] = None
            record["log_duration"] = f"{(time.perf_counter() - began) * 1000:.2f} ms"
            record["logs"] = [*self.errors, *troubles]
        elif self.errors:
            record["error"] = "; ".join(self.errors[:5])
        else:
            return
        self.cpu, self.memory, self.commands, self.errors = [], [], set(), []
        self._write(record)

    def _metadata(self) -> dict[str, Any]:
        environ = os.environ
        return {
            "level": "metadata",
            "workflow_id": environ.get("GITHUB_RUN_ID", ""),
            "job_id": self.options.job_id or "",
            "workflow_name": environ.get("GITHUB_WORKFLOW", ""),
            "job_name": self.options.job_name or environ.get("GITHUB_JOB", ""),
            "usage_collect_interval": self.options.interval,
            "data_model_version": VERSION,
            "start_at": int(time.time()),
            "gpu_count": self.devices.count(),
            "cpu_count": self.machine.cores,
            "gpu_type": self.devices.name,
            "error": None,
            "cpu_basis": self.machine.cpu_basis,
            "memory_basis": self.machine.memory_basis,
        }

    def _write(self, value: dict[str, Any]) -> None:
        self.log.write(json.dumps(value, separators=(",", ":")) + "\n")
        self.log.flush()


def _stats(values: list[float]) -> dict[str, Any] | None:
    if not values:
        return None
    return {"avg": round(sum(values) / len(values), 2), "max": round(max(values), 2), "raw": None}


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Return the options of the command line and, where it has none, of the environment."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--log", default="usage_log.txt", help="the file to write")
    add("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="between two samples (1)")
    add("--log-interval", type=_seconds, default=5.0, metavar="SECONDS", help="between two records (5)")
    add(
        "--device",
        default="auto",
        choices=("auto", "none", *devices.BUILT_IN),
        help="whose tool to ask (auto)",
    )
    add(
        "--device-command",
        default="",
        help="a command that prints JSON about accelerators; needs --device-map",
    )
    add("--device-map", default="", help="a JSON file that says where in it what is found (README.md)")
    add("--device-interval", type=_seconds, default=5.0, metavar="SECONDS", help="between two runs of it (5)")
    add("--job-id", default="", help="the job's id")
    add("--job-name", default="", help="the job's name; default GITHUB_JOB")
    add("--root", type=Path, default=Path("/"), help="the folder that holds proc and sys (/)")
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to name them all
        value = os.environ.get(f"INPUT_{action.dest.upper()}", "")
        if value and action.dest != "help":
            parser.set_defaults(**{action.dest: value})
    options = parser.parse_args(arguments)
    if bool(options.device_command) != bool(options.device_map):
        parser.error("--device-command and --device-map belong together")
    return options


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.05 <= value <= 3600:
        raise argparse.ArgumentTypeError("must be from 0.05 to 3600 seconds")
    return value


def main(arguments: list[str]) -> int:
    """Run until a signal; a full disk ends it quietly, since a job must not fail for its monitor."""
    options = parsed(arguments)
    try:
        log = open(options.log, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - closed by the end of the process
    except OSError as error:
        print(f"monitor: {error}", file=sys.stderr)
        return 2
    try:
        monitor = Monitor(options, log)
    except devices.MapError as error:
        print(f"monitor: {error}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: monitor.stopped.set())
    try:
        monitor.run()
        log.close()
    except OSError as error:
        print(f"monitor: stopped: {error}", file=sys.stderr)
        os._exit(0)  # what is buffered cannot be written either
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
