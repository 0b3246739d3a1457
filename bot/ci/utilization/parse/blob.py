"""A log's numbers as they are kept: a header, times, and one array a series, compressed.

Little-endian: the length of the header (u32), the header as JSON, the seconds since the record before (u32 each, the
first since the epoch), then the series in the header's order: percents in hundredths (u16), MiB as f32. A percent over
655.34 is kept as that: charts end at 100, and summaries are made before.
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

from bot.ci.utilization.parse.columns import RECORDS_MOST, SERIES_MOST, unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.ci.utilization.parse.usage_log import UsageLog

FORMAT = 1
NULL = 65_535
HIGHEST = 65_534
HEADER_MOST = 4 * 1024 * 1024
BYTES_MOST = HEADER_MOST + 4 * RECORDS_MOST * (SERIES_MOST + 1)
LENGTH = struct.Struct("<I")


class DamagedBlob(Exception):
    """These bytes are no blob of a log."""


class Columns(Mapping[str, Any]):
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


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A log's numbers, read back. NaN is none."""

    metadata: dict[str, Any]
    commands: list[str]
    details: dict[str, Any]  # what else was said of the log when it was read
    timestamps: Any
    series: Any  # Columns


def encode(log: UsageLog, details: Mapping[str, Any] | None = None) -> bytes:
    """Return the blob of a log."""
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
    parts = [packer.compress(LENGTH.pack(len(text)) + text), packer.compress(_bytes(_deltas(log.timestamps)))]
    for column, counted_in in zip(log.series.values(), units, strict=True):
        values = _hundredths(column) if counted_in == "percent" else array("f", column)
        parts.append(packer.compress(_bytes(values)))
    return b"".join((*parts, packer.flush()))


def decode(blob: bytes) -> Stored:
    """Return what a blob holds; raises DamagedBlob."""
    try:
        return _decoded(memoryview(zlib.decompressobj().decompress(blob, BYTES_MOST)))
    except (zlib.error, struct.error, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedBlob(f"no blob of a usage log: {error}") from None


def _decoded(plain: memoryview) -> Stored:
    (length,) = LENGTH.unpack_from(plain)
    at = LENGTH.size + length
    header = json.loads(bytes(plain[LENGTH.size : at]))
    if header["format"] != FORMAT:
        raise ValueError(f"format {header['format']}")
    records = header["records"]
    deltas = _array("I", plain, at, records)
    typecodes = {
        name: "H" if counted_in == "percent" else "f"
        for name, counted_in in zip(header["ids"], header["units"], strict=True)
    }
    return Stored(
        metadata=header["metadata"],
        commands=header["commands"],
        details=header["details"],
        timestamps=array("q", accumulate(deltas)),
        series=Columns(plain, records, at + records * deltas.itemsize, typecodes),
    )


_PERCENTS = [*(hundredths / 100 for hundredths in range(NULL)), math.nan]


def _hundredths(column: array[float]) -> array[int]:
    if max(column, default=0.0) * 100 < HIGHEST and not math.isnan(sum(column)):
        return array("H", [int(value * 100 + 0.5) for value in column])
    return array(
        "H",
        [min(HIGHEST, round(value * 100)) if value == value else NULL for value in column],  # noqa: PLR0124
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
