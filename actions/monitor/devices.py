"""What do the accelerators do? Asked from the vendor's own tool: in its loop mode, or run again and again."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

PERCENTS = ("util_percent", "mem_util_percent", "allocated_mem_percent")
FIELDS = ("uuid", *PERCENTS, "allocated_mem_value", "total_mem_value")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
OUTPUT_MOST = 4 * 1024 * 1024
WAIT = 30  # seconds for one run of a tool
DEVICES_MOST = 256
# the columns of tools that print a line for each device, again and again
LOOPS = {
    "nvidia-smi": (
        (
            "nvidia-smi --query-gpu=index,uuid,utilization.gpu,utilization.memory,memory.used,memory.total "
            "--format=csv,noheader,nounits --loop=1"
        ),
        ("index", "uuid", "util_percent", "mem_util_percent", "allocated_mem_value", "total_mem_value"),
    ),
    "hl-smi": (
        "hl-smi -Q index,uuid,utilization.aip,memory.used,memory.total -f csv,noheader -l 1",
        ("index", "uuid", "util_percent", "allocated_mem_value", "total_mem_value"),
    ),
    "xpu-smi": (
        "xpu-smi dump -d -1 -m 0,17,5,18 -i 1",
        ("", "index", "util_percent", "mem_util_percent", "allocated_mem_percent", "allocated_mem_value"),
    ),
}
# where tools that print JSON say it; of several places the first that is there
MAPS: dict[str, tuple[str, dict[str, Any]]] = {
    "amd-smi": (
        "amd-smi metric --usage --mem-usage --json",
        {
            "devices": ["gpu_data", ""],
            "uuid": "gpu",
            "util_percent": "usage.gfx_activity",
            "mem_util_percent": "usage.umc_activity",
            "allocated_mem_value": "mem_usage.used_vram",
            "total_mem_value": "mem_usage.total_vram",
        },
    ),
    "rocm-smi": (
        "rocm-smi --showuse --showmemuse --showmeminfo vram --showuniqueid --json",
        {
            "uuid": "Unique ID",
            "util_percent": "GPU use (%)",
            "mem_util_percent": "GPU Memory Read/Write Activity (%)",
            "allocated_mem_value": "VRAM Total Used Memory (B)",
            "total_mem_value": "VRAM Total Memory (B)",
            "value_unit": "B",
        },
    ),
}
BUILT_IN = ("nvidia-smi", "amd-smi", "rocm-smi", "npu-smi", "xpu-smi", "hl-smi")
UNITS = {"B": 1 / 1048576, "KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}


class MapError(Exception):
    """The map of a device command cannot be used."""


class NoDevices:
    """A machine without accelerators, or without a tool to ask."""

    name = ""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def count(self) -> int | None:
        """Return None: how many there are is not known."""
        return None

    def taken(self) -> tuple[list[dict[str, Any]] | None, list[str]]:
        """Return no usage and no trouble."""
        return None, []


class Devices:
    """Runs a tool beside the monitor, and keeps its samples until a record takes them."""

    def __init__(
        self, name: str, command: str, interval: float, *, columns: tuple[str, ...] = (), where: Any = None
    ) -> None:
        self.name = name
        self.command = shlex.split(command)
        self.interval = interval
        self.columns = columns
        self.where = where
        self._lock = threading.Lock()
        self._samples: dict[str, list[dict[str, Any]]] = {}
        self._last: list[dict[str, Any]] | None = None
        self._last_at = 0.0
        self._troubles: list[str] = []
        self._stopped = threading.Event()
        self._first = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start asking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop asking."""
        self._stopped.set()
        if self._process:
            with contextlib.suppress(OSError):
                self._process.kill()
        self._thread.join(timeout=5)

    def count(self) -> int | None:
        """Return how many devices there are, as far as the first answer says so in time."""
        self._first.wait(min(WAIT, max(2.0, self.interval)))
        with self._lock:
            return len(self._samples) or None

    def taken(self) -> tuple[list[dict[str, Any]] | None, list[str]]:
        """Return what was seen since the last call, else the last that was seen, unless that is old; and troubles."""
        with self._lock:
            samples, self._samples = self._samples, {}
            troubles, self._troubles = self._troubles, []
        if samples:
            self._last, self._last_at = [_usage(one) for one in samples.values()], time.monotonic()
        elif time.monotonic() - self._last_at > 3 * max(self.interval, 1.0):
            self._last = None
        return self._last, troubles

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self.columns:
                    self._loop()
                else:
                    self._ask()
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                self._trouble(f"{type(error).__name__}: {error}")
            self._stopped.wait(self.interval)

    def _loop(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - what the job's author or we wrote
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout
        with self._process, self._process.stdout as lines:
            for line in lines:
                cells = [cell.strip() for cell in line.split(",")]
                found = dict(zip(self.columns, cells))  # noqa: B905 - Python 3.9
                if found.get("index", "").isdigit() and len(cells) >= len(self.columns):
                    self._add(found["index"], {name: _value(found.get(name), name, 1.0) for name in FIELDS})
        if not self._stopped.is_set():
            self._trouble(f"{self.command[0]} ended with {self._process.returncode}")

    def _ask(self) -> None:
        done = subprocess.run(  # noqa: S603 - what the job's author or we wrote
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=WAIT, check=True,
        )  # fmt: skip
        output = done.stdout[:OUTPUT_MOST].decode(errors="replace")
        found = of_table(output) if self.where is None else of_json(json.loads(output), self.where)
        for index, one in enumerate(found):
            self._add(str(index), one)

    def _add(self, index: str, sample: dict[str, Any]) -> None:
        with self._lock:
            if index in self._samples or len(self._samples) < DEVICES_MOST:
                self._samples.setdefault(index, []).append(sample)
        self._first.set()

    def _trouble(self, text: str) -> None:
        with self._lock:
            if len(self._troubles) < 5:
                self._troubles.append(f"{self.name}: {text}"[:500])
        self._first.set()


def reader(options: argparse.Namespace) -> Devices | NoDevices:
    """Return what asks the accelerators that the options name; raises MapError."""
    interval = options.device_interval
    if options.device_command:
        return Devices(
            _program(options.device_command), options.device_command, interval, where=_map(options.device_map)
        )
    names = BUILT_IN if options.device == "auto" else (options.device,)
    name = next((one for one in names if shutil.which(one)), "")
    if name in LOOPS:
        command, columns = LOOPS[name]
        return Devices(name, command, interval, columns=columns)
    if name in MAPS:
        command, where = MAPS[name]
        return Devices(name, command, interval, where=where)
    return Devices(name, "npu-smi info", interval) if name == "npu-smi" else NoDevices()


def of_json(value: Any, where: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a sample of every device in what a tool printed."""
    listed = _at(value, where.get("devices", ""))
    found = list(listed.values()) if isinstance(listed, dict) else listed if isinstance(listed, list) else []
    factor = UNITS[where.get("value_unit", "MiB")]
    return [
        {name: _value(_at(one, where[name]) if name in where else None, name, factor) for name in FIELDS}
        for one in found[:DEVICES_MOST]
        if isinstance(one, dict)
        and any(name in where and _at(one, where[name]) is not None for name in FIELDS)
    ]


def of_table(text: str) -> list[dict[str, Any]]:
    """Return a sample of every chip in the table of `npu-smi info`: the second line of each tells its bus and usage."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 3 or not re.fullmatch(r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d", cells[1]):
            continue
        numbers = [float(number) for number in NUMBER.findall(cells[2])]
        pairs = list(zip(numbers[1::2], numbers[2::2]))  # noqa: B905 - Python 3.9; used and total, of memory and of HBM
        if pairs:
            used, total = max(pairs, key=lambda pair: pair[1])
            found.append(
                {
                    "uuid": cells[1],
                    "util_percent": numbers[0],
                    "allocated_mem_value": used,
                    "total_mem_value": total,
                }
            )
    return found


def _usage(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one device's samples as a record holds them."""
    for one in samples:
        used, total = one.get("allocated_mem_value"), one.get("total_mem_value")
        if one.get("allocated_mem_percent") is None and used is not None and total:
            one["allocated_mem_percent"] = 100 * used / total
    usage: dict[str, Any] = {"uuid": samples[-1].get("uuid")}
    for name in (*PERCENTS, "allocated_mem_value"):
        values = [one[name] for one in samples if one.get(name) is not None]
        usage[name] = (
            {"avg": round(sum(values) / len(values), 2), "max": round(max(values), 2), "raw": None}
            if values
            else None
        )
    usage["total_mem_value"] = samples[-1].get("total_mem_value")
    return usage


def _value(found: Any, name: str, factor: float) -> Any:
    """Return a device's name as text, and everything else as a number: of `45 %`, 45."""
    if isinstance(found, dict):
        found = found.get("value")
    if name == "uuid":
        return str(found)[:64] if found is not None else None
    if isinstance(found, str):
        match = NUMBER.search(found)
        found = float(match.group()) if match else None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return found * factor if name.endswith("_value") else found


def _at(value: Any, path: Any) -> Any:
    """Return what is at a path, keys joined by dots; of several paths the first that leads somewhere."""
    if isinstance(path, list):
        return next((found for one in path if (found := _at(value, one)) is not None), None)
    for key in path.split(".") if path else ():
        if isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict):
            value = value.get(key)
        else:
            return None
    return value


def _map(name: str) -> dict[str, Any]:
    try:
        where = json.loads(Path(name).read_text())
    except (OSError, ValueError) as error:
        raise MapError(f"{name}: {error}") from None
    known = {"devices", "value_unit", *FIELDS}
    if not isinstance(where, dict) or not set(FIELDS) & where.keys():
        raise MapError(f"{name}: an object with at least one of {', '.join(FIELDS)} is needed")
    if wrong := sorted(where.keys() - known):
        raise MapError(f"{name}: unknown: {', '.join(wrong)}")
    for key, path in where.items():
        paths = path if isinstance(path, list) else [path]
        if not all(isinstance(one, str) for one in paths):
            raise MapError(f"{name}: {key} must be a path or a list of paths")
    if where.get("value_unit", "MiB") not in UNITS:
        raise MapError(f"{name}: value_unit is one of {', '.join(UNITS)}")
    return where


def _program(command: str) -> str:
    words = shlex.split(command)
    return Path(words[0]).name if words else ""
