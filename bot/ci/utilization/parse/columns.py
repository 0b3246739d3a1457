"""How are the numbers of all records kept? One array a series, in the order the series were first seen."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORDS_MOST = 20_000
SERIES_MOST = 1_024
GPUS_MOST = 64
DEPTH_MOST = 8
PLACES_MOST = 4_096
ID_MOST = 200
UUID_MOST = 64
PERCENT_MOST = 10_000
VALUE_MOST = 1e12
NULL = math.nan
MEBIBYTES = ("allocated_mem_value", "total_mem_value")


class _Place:
    """Somewhere in the data of records: known once, so that no record has to spell out its paths again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.inner: dict[str | int, _Place] = {}
        self.leaves: dict[str | int, tuple[array[float], float]] = {}

    def take(self, value: dict[str, Any], at: int) -> bool:
        """Add a pair of mean and maximum, as nearly all objects are; returns False for what needs a closer look."""
        known = self.leaves
        if len(known) != 2 or "avg" not in known or "max" not in known:
            return False
        if len(value) != 2 and (len(value) != 3 or value.get("raw", 0) is not None):
            return False
        mean, most = value.get("avg"), value.get("max")
        means, limit = known["avg"]
        maxima, _ = known["max"]
        if type(mean) is not float or type(most) is not float or not len(means) == len(maxima) == at:
            return False
        if not (0 <= mean <= limit and 0 <= most <= limit):
            return False
        means.append(mean)
        maxima.append(most)
        return True


class Columns:
    """The records added so far, thinned to every k-th where there are too many."""

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.series: dict[str, array[float]] = {}
        self.running: list[tuple[int, ...]] = []  # numbers of the commands of each record
        self.flags: set[str] = set()
        self.added = 0
        self._every = 1
        self._root = _Place("")
        self._places = 1

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
        self._collect(data, self._root, at, DEPTH_MOST)

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

    def _collect(self, value: Any, place: _Place, at: int, depth: int) -> None:
        """Add every number of a value to its series: depth first, keys in their order."""
        items: Iterable[tuple[Any, Any]]
        if isinstance(value, dict):
            inner = self._of_uuid(value, place)
            if inner is None:
                return
            place, items = inner, value.items()
        else:
            items = self._thinned(value) if place.path == "gpu_usage" else enumerate(value)
        for key, found in items:
            kind = type(found)
            if kind is float or kind is int:
                leaf = place.leaves.get(key) or self._leaf(place, key)
                if leaf:
                    self._append(leaf, found, at)
            elif kind is dict or kind is list:
                inner = place.inner.get(key) or self._inner(place, key)
                if inner and depth:
                    if not (kind is dict and inner.take(found, at)):
                        self._collect(found, inner, at, depth - 1)
                else:
                    self.flags.add("series_left_out")

    def _of_uuid(self, value: dict[str, Any], place: _Place) -> _Place | None:
        """Return where the fields of an object stand: under its uuid, if it has one."""
        uuid = value.get("uuid")
        return self._inner(place, f"uuid:{uuid[:UUID_MOST]}") if isinstance(uuid, str) and uuid else place

    def _append(self, leaf: tuple[array[float], float], value: float, at: int) -> None:
        column, most = leaf
        if len(column) < at:
            _pad(column, at)
        if len(column) == at:
            if not 0 <= value <= most:
                self.flags.add("invalid_values")
                value = NULL
            column.append(value)

    def _leaf(self, place: _Place, key: str | int) -> tuple[array[float], float] | None:
        """Return the column of a number, and the most it may be; None where there are too many."""
        series = f"{place.path}|{key}" if place.path else str(key)
        column = self.series.get(series)
        if column is None:
            if len(self.series) == SERIES_MOST or len(series) > ID_MOST:
                self.flags.add("series_left_out")
                return None
            column = self.series[series] = array("d")
        leaf = place.leaves[key] = column, VALUE_MOST if unit(series) == "MiB" else PERCENT_MOST
        return leaf

    def _inner(self, place: _Place, key: str | int) -> _Place | None:
        """Return the place of what is below a key; None where there are too many."""
        if (known := place.inner.get(key)) is not None:
            return known
        path = f"{place.path}|{key}" if place.path else str(key)
        if self._places == PLACES_MOST or len(path) > ID_MOST:
            self.flags.add("series_left_out")
            return None
        self._places += 1
        inner = place.inner[key] = _Place(path)
        return inner

    def _thinned(self, gpus: list[Any]) -> Iterable[tuple[int, Any]]:
        if len(gpus) <= GPUS_MOST:
            return enumerate(gpus)
        self.flags.add("thinned_gpus")
        every = -(-len(gpus) // GPUS_MOST)
        return [(index, gpus[index]) for index in range(0, len(gpus), every)]

    def _thin(self) -> None:
        self.flags.add("thinned")
        for column in self.series.values():
            _pad(column, len(self.timestamps))
            column[:] = column[::2]  # in place: leaves hold it
        self.timestamps = self.timestamps[::2]
        self.running = self.running[::2]
        self._every *= 2


def unit(series: str) -> str:
    """Return what a series is counted in: `MiB` or `percent`."""
    return "MiB" if any(part in MEBIBYTES for part in series.split("|")) else "percent"


def _pad(column: array[float], length: int) -> None:
    column.extend([NULL] * (length - len(column)))
