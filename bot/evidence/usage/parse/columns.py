"""The numbers of all records: one array a series while a log is read, and the blob that they are kept as.

A blob is compressed and little-endian: the length of the header (u32), the header as JSON, the seconds since
the record before (u32 each, the first since the epoch), then the series in the header's order: percents in
hundredths (u16), MiB as f32. A percent over 655.34 is kept as that: charts end at 100, and summaries are made
before.
"""

from __future__ import annotations

import json
import math
import struct
import sys
import zlib
from array import array
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bot.evidence.usage.parse.usage_log import UsageLog

RECORDS_MOST = 20_000
SERIES_MOST = 1_024
GPUS_MOST = 64
DEPTH_MOST = 8
PLACES_MOST = 4_096
ID_MOST = 200
UUID_MOST = 64
PERCENT_MOST = 10_000
VALUE_MOST = 1e12
MISSING = math.nan
MEBIBYTES = ("allocated_mem_value", "total_mem_value")
FORMAT = 1
NULL_HUNDREDTHS = 65_535
HIGHEST = 65_534
HEADER_MOST = 4 * 1024 * 1024
BYTES_MOST = HEADER_MOST + 4 * RECORDS_MOST * (SERIES_MOST + 1)
HEADER_LENGTH = struct.Struct("<I")
_PERCENTS = [*(hundredths / 100 for hundredths in range(NULL_HUNDREDTHS)), math.nan]


class _Place:
    """A place in the data of records, known once, so that no record has to spell out its paths again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.inner: dict[str | int, _Place] = {}
        self.leaves: dict[str | int, tuple[array[float], float]] = {}

    def take(self, value: dict[str, Any], at: int) -> bool:
        """Add a pair of mean and maximum, as nearly all objects are; return False for anything else."""
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


class DamagedBlob(Exception):
    """These bytes are no blob of a log."""


class StoredColumns(Mapping[str, Any]):
    """Arrays of numbers by series, each made when it is asked for."""

    def __init__(self, plain: memoryview, records: int, start: int, typecodes: Mapping[str, str]) -> None:
        self._plain, self._records = plain, records
        self._places: dict[str, tuple[str, int]] = {}
        self._made: dict[str, Any] = {}
        for name, typecode in typecodes.items():
            self._places[name] = typecode, start
            start += records * array(typecode).itemsize
        if start > len(plain):
            raise ValueError("it ends too early")

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            typecode, at = self._places[name]
            stored = _array(typecode, self._plain, at, self._records)
            percents = typecode == "H"
            self._made[name] = array("d", map(_PERCENTS.__getitem__, stored)) if percents else stored
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class StoredUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A log's numbers, read back; NaN stands for no number."""

    metadata: dict[str, Any]
    commands: list[str]
    details: dict[str, Any]  # what else was said of the log when it was read
    timestamps: Any
    series: Any  # Columns


class RecordColumns:
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
        """Bring all series to full length, and all records into the order of time."""
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
        for key, inner_value in items:
            kind = type(inner_value)
            if kind is float or kind is int:
                leaf = place.leaves.get(key) or self._leaf(place, key)
                if leaf:
                    self._append(leaf, inner_value, at)
            elif kind is dict or kind is list:
                inner = place.inner.get(key) or self._inner(place, key)
                if inner and depth:
                    if not (kind is dict and inner.take(inner_value, at)):
                        self._collect(inner_value, inner, at, depth - 1)
                else:
                    self.flags.add("series_left_out")

    def _of_uuid(self, value: dict[str, Any], place: _Place) -> _Place | None:
        """Return the place of an object's fields: under its uuid, if it has one."""
        uuid = value.get("uuid")
        return self._inner(place, f"uuid:{uuid[:UUID_MOST]}") if isinstance(uuid, str) and uuid else place

    def _append(self, leaf: tuple[array[float], float], value: float, at: int) -> None:
        column, most = leaf
        if len(column) < at:
            _pad(column, at)
        if len(column) == at:
            if not 0 <= value <= most:
                self.flags.add("invalid_values")
                value = MISSING
            column.append(value)

    def _leaf(self, place: _Place, key: str | int) -> tuple[array[float], float] | None:
        """Return the column of a number and its maximum, or None if there are too many."""
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
        """Return the place below a key, or None if there are too many."""
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
    column.extend([MISSING] * (length - len(column)))


def encode_usage(log: UsageLog, details: Mapping[str, Any] | None = None) -> bytes:
    """Encode a log as a blob."""
    units = [unit(name) for name in log.series]
    header = {
        "format": FORMAT,
        "records": len(log.timestamps),
        "ids": list(log.series),
        "units": units,
        "metadata": msgspec.to_builtins(log.metadata) if log.metadata else {},
        "commands": log.commands,
        "details": {**(details or {})},
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    packer = zlib.compressobj(6)
    parts = [
        packer.compress(HEADER_LENGTH.pack(len(text)) + text),
        packer.compress(_bytes(_deltas(log.timestamps))),
    ]
    for column, counted_in in zip(log.series.values(), units, strict=True):
        values = _hundredths(column) if counted_in == "percent" else array("f", column)
        parts.append(packer.compress(_bytes(values)))
    return b"".join((*parts, packer.flush()))


def decode_usage(blob: bytes) -> StoredUsage:
    """Decode a blob; raise DamagedBlob if it is none."""
    try:
        return _decode_plain(memoryview(zlib.decompressobj().decompress(blob, BYTES_MOST)))
    except (zlib.error, struct.error, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedBlob(f"no blob of a usage log: {error}") from None


def _decode_plain(plain: memoryview) -> StoredUsage:
    (length,) = HEADER_LENGTH.unpack_from(plain)
    at = HEADER_LENGTH.size + length
    header = json.loads(bytes(plain[HEADER_LENGTH.size : at]))
    if header["format"] != FORMAT:
        raise ValueError(f"format {header['format']}")
    records = header["records"]
    deltas = _array("I", plain, at, records)
    typecodes = {
        name: "H" if counted_in == "percent" else "f"
        for name, counted_in in zip(header["ids"], header["units"], strict=True)
    }
    return StoredUsage(
        metadata=header["metadata"],
        commands=header["commands"],
        details=header["details"],
        timestamps=array("q", accumulate(deltas)),
        series=StoredColumns(plain, records, at + records * deltas.itemsize, typecodes),
    )


def _hundredths(column: array[float]) -> array[int]:
    if max(column, default=0.0) * 100 < HIGHEST and not math.isnan(sum(column)):
        return array("H", [int(value * 100 + 0.5) for value in column])
    return array(
        "H",
        [min(HIGHEST, round(value * 100)) if value == value else NULL_HUNDREDTHS for value in column],  # noqa: PLR0124
    )


def _deltas(timestamps: array[int]) -> array[int]:
    before = [0, *timestamps[:-1]]
    return array("I", [at - earlier for at, earlier in zip(timestamps, before, strict=False)])


def _bytes(values: array[Any]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _array(typecode: str, plain: memoryview, at: int, count: int) -> array[Any]:
    values: array[Any] = array(typecode)
    values.frombytes(plain[at : at + count * values.itemsize])
    if len(values) != count:
        raise ValueError("it ends too early")
    if sys.byteorder == "big":
        values.byteswap()
    return values
