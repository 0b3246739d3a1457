"""How are the numbers of all records kept? One array a series, in the order the series were first seen."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS_MOST = 20_000
SERIES_MOST = 1_024
GPUS_MOST = 64
DEPTH_MOST = 8
ID_MOST = 200
UUID_MOST = 64
PERCENT_MOST = 10_000
VALUE_MOST = 1e12
NULL = math.nan
MEBIBYTES = ("allocated_mem_value", "total_mem_value")


class Columns:
    """The records added so far, thinned to every k-th where there are too many."""

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.series: dict[str, array[float]] = {}
        self.running: list[tuple[int, ...]] = []  # numbers of the commands of each record
        self.flags: set[str] = set()
        self.added = 0
        self._every = 1

    def add(self, timestamp: int, data: dict[str, Any], running: tuple[int, ...]) -> None:
        """Add a record."""
        self.added += 1
        if (self.added - 1) % self._every:
            return
        if len(self.timestamps) == RECORDS_MOST:
            self._thin()
            if (self.added - 1) % self._every:
                return
        at = len(self.timestamps)
        self.timestamps.append(timestamp)
        self.running.append(running)
        for series, value in self._numbers(data, "", DEPTH_MOST):
            self._put(series, value, at)

    def finish(self) -> None:
        """Give all series their full length, and all records their order in time."""
        length = len(self.timestamps)
        for column in self.series.values():
            _pad(column, length)
        order = sorted(range(length), key=self.timestamps.__getitem__)
        if order == list(range(length)):
            return
        self.timestamps = array("q", [self.timestamps[index] for index in order])
        self.running = [self.running[index] for index in order]
        for series, column in self.series.items():
            self.series[series] = array("d", [column[index] for index in order])

    def _put(self, series: str, value: float, at: int) -> None:
        column = self.series.get(series)
        if column is None:
            if len(self.series) == SERIES_MOST or len(series) > ID_MOST:
                self.flags.add("series_left_out")
                return
            column = self.series[series] = array("d")
        if len(column) < at:
            _pad(column, at)
        if len(column) == at:
            column.append(self._checked(series, value))

    def _checked(self, series: str, value: float) -> float:
        most = VALUE_MOST if unit(series) == "MiB" else PERCENT_MOST
        if 0 <= value <= most:
            return value
        self.flags.add("invalid_values")
        return NULL

    def _numbers(self, value: Any, path: str, depth: int) -> Iterator[tuple[str, float]]:
        """Yield every number with its series: depth first, keys in their order."""
        items: Iterator[tuple[Any, Any]]
        if isinstance(value, dict):
            uuid = value.get("uuid")
            if isinstance(uuid, str) and uuid:
                path = f"{path}|uuid:{uuid[:UUID_MOST]}" if path else f"uuid:{uuid[:UUID_MOST]}"
            items = iter(value.items())
        else:
            items = enumerate(value)
            if path == "gpu_usage" and len(value) > GPUS_MOST:
                self.flags.add("thinned_gpus")
                every = -(-len(value) // GPUS_MOST)
                items = iter([(index, value[index]) for index in range(0, len(value), every)])
        prefix = f"{path}|" if path else ""
        for key, inner in items:
            kind = type(inner)
            if kind is float or kind is int:
                yield f"{prefix}{key}", inner
            elif kind is dict or kind is list:
                if depth == 0:
                    self.flags.add("series_left_out")
                    continue
                yield from self._numbers(inner, f"{prefix}{key}", depth - 1)

    def _thin(self) -> None:
        self.flags.add("thinned")
        for series, column in self.series.items():
            _pad(column, len(self.timestamps))
            self.series[series] = column[::2]
        self.timestamps = self.timestamps[::2]
        self.running = self.running[::2]
        self._every *= 2


def unit(series: str) -> str:
    """Return what a series is counted in: `MiB` or `percent`."""
    return "MiB" if any(part in MEBIBYTES for part in series.split("|")) else "percent"


def _pad(column: array[float], length: int) -> None:
    column.extend([NULL] * (length - len(column)))
