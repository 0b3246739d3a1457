"""What does a usage log say? Lines of JSON: metadata first, then a record for every interval."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import msgspec

from bot.ci.utilization.parse.columns import Columns
from bot.ci.utilization.parse.commands import Commands
from bot.ci.utilization.parse.metadata import Metadata, NotReadable, metadata_of, moment

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator

    from bot.ci.utilization.tables import Extent, Outcome

LINE_MOST = 1024 * 1024  # bytes; a longer line is broken
BROKEN = object()  # what a line that is no JSON is read as


@dataclass(frozen=True, kw_only=True)
class UsageLog:
    """A usage log as read. Its status is ok, no_records, legacy or refused; the reason says why it is not ok."""

    outcome: Outcome
    metadata: Metadata | None
    columns: Columns
    commands: list[str]
    errors: int  # records that hold an error

    @property
    def charted(self) -> bool:
        """Whether it holds records."""
        return self.outcome["status"] == "ok"

    @property
    def timestamps(self) -> array[int]:
        """Return the times of the records, in order."""
        return self.columns.timestamps

    @property
    def series(self) -> dict[str, array[float]]:
        """Return a column of numbers by series, NaN where there is none."""
        return self.columns.series

    @property
    def running(self) -> list[tuple[int, ...]]:
        """Return the numbers of the commands of every record."""
        return self.columns.running

    @property
    def start_at(self) -> int:
        """Return when the log begins; of one whose metadata do not say it, its first record."""
        return (self.metadata.start_at if self.metadata else 0) or (
            self.timestamps[0] if self.timestamps else 0
        )

    @property
    def end_at(self) -> int:
        """Return the time of the last valid record, or the beginning of a log without one."""
        return self.timestamps[-1] if self.timestamps else self.start_at

    @property
    def extent(self) -> Extent:
        """Return from when to when it reaches, and how many records it holds, before thinning."""
        return {
            "start_at": self.start_at,
            "end_at": self.end_at,
            "records": self.columns.added,
            "error_records": self.errors,
        }


class _Reader:
    """Reads one log."""

    def __init__(self, *, force: bool = False) -> None:
        self._force = force
        self._columns = Columns()
        self._commands = Commands()
        self._flags: set[str] = set()
        self._errors = 0
        self._last = 0

    def read(self, file: IO[bytes]) -> UsageLog:
        """Return what the log says."""
        lines = decoded(file, self._flags)
        first = next(lines, None)
        if first is None:
            return self._log("no_records", "the file is empty", None)
        metadata = None
        try:
            metadata = metadata_of(first)
        except NotReadable as error:
            if not self._force or error.status == "legacy":
                return self._unread(error, lines)
            self._flags.add("forced")
            if isinstance(first, dict) and first.get("level") == "metadata":
                metadata = _forced(first)
            else:
                self.add(first)
        for line in lines:
            self.add(line)
        if not self._columns.added:
            reason = "there are only error records" if self._errors else "there is no record"
            return self._log("no_records", reason, metadata)
        return self._log("ok", "", metadata)

    def add(self, line: Any) -> None:
        """Add a decoded line."""
        if is_error(line):
            self._errors += 1
            return
        valid = valid_record(line)
        if valid is None:
            self._flags.add("broken_lines")
            return
        timestamp, milliseconds, data = valid
        if milliseconds:
            self._flags.add("milliseconds")
        if timestamp < self._last - 1:
            self._flags.add("unordered")
        self._last = max(self._last, timestamp)
        self._columns.add(timestamp, data, self._commands.of_record(line.get("cmd_names")))

    def _unread(self, error: NotReadable, lines: Iterator[Any]) -> UsageLog:
        self._columns.added = sum(1 for line in lines if isinstance(line, dict))
        if error.reason == "model of 2022":  # it has no metadata: the first line is a record
            self._columns.added += 1
        return self._log(error.status, error.reason, None)

    def _log(self, status: str, reason: str, metadata: Metadata | None) -> UsageLog:
        self._columns.finish()
        flags = sorted(self._flags | self._columns.flags | self._commands.flags)
        return UsageLog(
            outcome={"status": status, "reason": reason, "flags": flags},
            metadata=metadata,
            columns=self._columns,
            commands=self._commands.names,
            errors=self._errors,
        )


def read_log(file: IO[bytes], *, force: bool = False) -> UsageLog:
    """Read a usage log; with `force` also one whose metadata are missing or of another version."""
    return _Reader(force=force).read(file)


def decoded(file: IO[bytes], flags: set[str]) -> Iterator[Any]:
    """Yield every line that is not blank, decoded, or BROKEN; a last line that was cut off is left out."""
    while line := file.readline(LINE_MOST + 1):
        whole = line.endswith(b"\n")
        if len(line) > LINE_MOST and not whole:
            _skip_line(file)
            yield BROKEN
            continue
        if not line.strip():
            continue
        value = _value(line)
        if value is BROKEN and not whole:
            flags.add("torn_last_line")
            return
        yield value


def is_error(line: Any) -> bool:
    """Say whether a line is a record that holds an error in place of data."""
    return isinstance(line, dict) and line.get("level") == "record" and bool(line.get("error"))


def valid_record(line: Any) -> tuple[int, bool, dict[str, Any]] | None:
    """Return time, whether that was in milliseconds, and data of a record; None if it is not valid."""
    if not isinstance(line, dict) or line.get("level") != "record" or not isinstance(line.get("data"), dict):
        return None
    at = moment(line.get("timestamp"))
    return (*at, line["data"]) if at else None


def _value(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:  # NaN and Infinity are no JSON, but Python's own encoder writes them
        value = json.loads(line.decode(errors="replace"))
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
        return value
    except (ValueError, RecursionError):
        return BROKEN


def _skip_line(file: IO[bytes]) -> None:
    while (rest := file.readline(LINE_MOST)) and not rest.endswith(b"\n"):
        pass


def _forced(line: dict[str, Any]) -> Metadata | None:
    """Return the metadata of another version, read as if it were ours."""
    try:
        return metadata_of(line | {"data_model_version": 1.5})
    except NotReadable:
        return None
