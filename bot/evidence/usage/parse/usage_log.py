"""What a usage log says: lines of JSON, metadata first, then a record for every interval.

Its commands are kept without the secrets on their command lines. From a log alone, the console writes the
documents that upstream's tools read: one about the job, and one a record.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import msgspec
import re2

from bot.core.masking import PRIVATE_KEY, TOKENS
from bot.evidence.usage.parse.columns import MEBIBYTES, PERCENT_MOST, VALUE_MOST, RecordColumns

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Sequence

    from bot.evidence.usage.parse.segments import Segment
    from bot.evidence.usage.tables import Extent, Outcome

EXTRA_MOST = 4096  # bytes of the fields that model 1.5 does not have, as JSON
TEXT_MOST = 512


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The first line, with every field of its type; ids and names are claims of the job that wrote it."""

    level: str = "metadata"
    workflow_id: str = ""
    job_id: str = ""
    workflow_name: str = ""
    job_name: str = ""
    usage_collect_interval: float = 1.0  # seconds between two samples
    data_model_version: float
    start_at: int
    gpu_count: int | None = None
    cpu_count: int | None = None
    gpu_type: str | None = None  # the library or command that was asked, no model
    error: str | None = None
    extra: dict[str, Any] = {}


KNOWN_FIELDS = frozenset(Metadata.__struct_fields__) - {"extra"}
LINE_MOST = 1024 * 1024  # bytes; a longer line is broken
BROKEN = object()  # what a line that is no JSON is read as
COMMAND_MOST = 512
COMMANDS_MOST = 2_000
COMMANDS_OF_RECORD_MOST = 256  # commands of one record
SEEN_MOST = 4_000
MASK = "***"
COMPACT = (",", ":")


class NotReadable(Exception):
    """The first line does not begin a log that is charted."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class UsageLog:
    """A usage log as read. Its status is ok, no_records, legacy or refused; the reason says why it is not ok."""

    outcome: Outcome
    metadata: Metadata | None
    columns: RecordColumns
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
        """Return when the log begins by its metadata, else by its first record."""
        return (self.metadata.start_at if self.metadata else 0) or (
            self.timestamps[0] if self.timestamps else 0
        )

    @property
    def end_at(self) -> int:
        """Return the time of the last valid record, or the beginning of a log without one."""
        return self.timestamps[-1] if self.timestamps else self.start_at

    @property
    def extent(self) -> Extent:
        """Return the times that the log spans and how many records it holds, before thinning."""
        return {
            "start_at": self.start_at,
            "end_at": self.end_at,
            "records": self.columns.added,
            "error_records": self.errors,
        }


class Commands:
    """The distinct commands of one log."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.flags: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._seen: dict[str, int] = {}  # as written in the log
        self._sets: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._secret = re2.compile("|".join((*TOKENS, rf"(?s){PRIVATE_KEY}.*")))

    def of_record(self, names: Any) -> tuple[int, ...]:
        """Return the numbers of a record's commands, each once."""
        if not isinstance(names, list):
            return ()
        if len(names) > COMMANDS_OF_RECORD_MOST:
            self.flags.add("commands_left_out")
        numbers = [self._number(name) for name in names[:COMMANDS_OF_RECORD_MOST] if isinstance(name, str)]
        commands = tuple(dict.fromkeys(number for number in numbers if number is not None))
        if len(self._sets) >= SEEN_MOST:
            self._sets.clear()
        return self._sets.setdefault(commands, commands)

    def _number(self, written: str) -> int | None:
        if (known := self._seen.get(written)) is not None:
            return known
        name = self.masked(written)[:COMMAND_MOST]
        number = self._numbers.get(name)
        if number is None:
            if len(self.names) == COMMANDS_MOST:
                self.flags.add("commands_left_out")
                return None
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        if len(self._seen) < SEEN_MOST:
            self._seen[written] = number
        return number

    def masked(self, written: str) -> str:
        """Return a command without the secrets in it."""
        text = written.encode("utf-8", "replace").decode()
        masked: str = self._secret.sub(MASK, text)
        if masked != text:
            self.flags.add("secrets_masked")
        return masked


def metadata_of(line: Any) -> Metadata:
    """Read a decoded first line; raise NotReadable if no log begins with it."""
    if not isinstance(line, dict):
        raise NotReadable("refused", "no metadata: the first line is not a JSON object")
    if model := legacy_model(line):
        raise NotReadable("legacy", f"model of {model}")
    if line.get("level") != "metadata":
        raise NotReadable("refused", "no metadata: the first line is not of level metadata")
    version = version_of(line.get("data_model_version"))
    if version is None:
        raise NotReadable("refused", "version: the metadata have no data_model_version")
    if not 1 <= version < 2:
        raise NotReadable("refused", f"version: {version:g} is not 1.x")
    interval = finite_number(line.get("usage_collect_interval"))
    extra = {str(key)[:TEXT_MOST]: value for key, value in line.items() if key not in KNOWN_FIELDS}
    return Metadata(
        workflow_id=bounded_text(line.get("workflow_id")),
        job_id=bounded_text(line.get("job_id")),
        workflow_name=bounded_text(line.get("workflow_name")),
        job_name=bounded_text(line.get("job_name")),
        usage_collect_interval=1.0 if interval is None else interval,
        data_model_version=version,
        start_at=(moment(line.get("start_at")) or (0, False))[0],
        gpu_count=whole_number(line.get("gpu_count")),
        cpu_count=whole_number(line.get("cpu_count")),
        gpu_type=bounded_text(line.get("gpu_type")) if line.get("gpu_type") is not None else None,
        error=bounded_text(line.get("error")) or None,
        extra=extra if len(json.dumps(extra)) <= EXTRA_MOST else {},
    )


def legacy_model(line: dict[str, Any]) -> str:
    """Return the year of the older model that a line is written in, or an empty string."""
    if (
        "level" not in line
        and "time" in line
        and ("total_cpu_percent" in line or "per_process_cpu_info" in line)
    ):
        return "2022"
    if (
        line.get("level") == "metadata"
        and "data_model_version" not in line
        and {"interval", "start_time"} & line.keys()
    ):
        return "2024"
    return ""


def version_of(value: Any) -> float | None:
    """Return a version of the model as a number."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return finite_number(value)


def moment(value: Any) -> tuple[int, bool] | None:
    """Return a time in seconds since the epoch, and whether it was given in milliseconds."""
    time = finite_number(value)
    if time is None:
        return None
    milliseconds = time > 1e12
    seconds = int(time / 1000 if milliseconds else time)
    return (seconds, milliseconds) if 0 < seconds < 2**32 else None


def finite_number(value: Any) -> float | None:
    """Return a finite number that is not negative, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) and converted >= 0 else None


def whole_number(value: Any) -> int | None:
    """Return a whole number of things, or None if it is unknown."""
    count = finite_number(value)
    return int(count) if count is not None and count <= 1_000_000 else None


def bounded_text(value: Any) -> str:
    """Return a text of bounded length; ids may come as numbers."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64:
        return str(value)
    return value[:TEXT_MOST] if isinstance(value, str) else ""


class _Reader:
    """Reads one log."""

    def __init__(self, *, force: bool = False) -> None:
        self._force = force
        self._columns = RecordColumns()
        self._commands = Commands()
        self._flags: set[str] = set()
        self._errors = 0
        self._last = 0

    def read(self, file: IO[bytes]) -> UsageLog:
        """Return what the log says."""
        lines = decode_lines(file, self._flags)
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
                metadata = _forced_metadata(first)
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
    """Read a usage log; with `force` also one whose metadata is missing or of another version."""
    return _Reader(force=force).read(file)


def decode_lines(file: IO[bytes], flags: set[str]) -> Iterator[Any]:
    """Decode every line that is not blank, or yield BROKEN; a last line that was cut off is skipped."""
    while line := file.readline(LINE_MOST + 1):
        whole = line.endswith(b"\n")
        if len(line) > LINE_MOST and not whole:
            _skip_line(file)
            yield BROKEN
            continue
        if not line.strip():
            continue
        value = _decode_line(line)
        if value is BROKEN and not whole:
            flags.add("torn_last_line")
            return
        yield value


def is_error(line: Any) -> bool:
    """Say whether a line is a record that holds an error in place of data."""
    return isinstance(line, dict) and line.get("level") == "record" and bool(line.get("error"))


def valid_record(line: Any) -> tuple[int, bool, dict[str, Any]] | None:
    """Return a record's time, whether it was in milliseconds, and its data; None if it is invalid."""
    if not isinstance(line, dict) or line.get("level") != "record" or not isinstance(line.get("data"), dict):
        return None
    at = moment(line.get("timestamp"))
    return (*at, line["data"]) if at else None


def _decode_line(line: bytes) -> Any:
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


def _forced_metadata(line: dict[str, Any]) -> Metadata | None:
    """Read metadata of another version as if it were ours."""
    try:
        return metadata_of(line | {"data_model_version": 1.5})
    except NotReadable:
        return None


def metadata_line(log: UsageLog, segments: Sequence[Segment], *, created_at: int) -> str:
    """Return the document about the job: one line of JSON."""
    said = log.metadata
    document = _claims(log) | {
        "usage_collect_interval": said.usage_collect_interval if said else 1.0,
        "data_model_version": f"{said.data_model_version:g}" if said else "",
        "gpu_count": (said and said.gpu_count) or 0,
        "cpu_count": (said and said.cpu_count) or 0,
        "gpu_type": (said and said.gpu_type) or "",
        "start_at": log.start_at,
        "end_at": log.end_at,
        "segments": [
            {name: getattr(segment, name) for name in ("level", "name", "start_at", "end_at", "extra_info")}
            for segment in segments
        ],
        "tags": [],
    }
    return json.dumps({"created_at": created_at} | document, separators=COMPACT)


def record_lines(file: IO[bytes], log: UsageLog, *, created_at: int) -> Iterator[str]:
    """Yield a document for every valid record of a log's file, in the file's order."""
    claims = _claims(log)
    for line in decode_lines(file, set()):
        valid = None if is_error(line) else valid_record(line)
        if valid is None:
            continue
        document = {
            "created_at": created_at,
            "type": "utilization",
            "tags": ["record"],
            "time_stamp": valid[0],
            **claims,
            "json_data": json.dumps(_plausible(valid[2], PERCENT_MOST), allow_nan=False),
        }
        yield json.dumps(document, separators=COMPACT)


def _claims(log: UsageLog) -> dict[str, Any]:
    """Return whose log it is: without a run, what the log itself claims."""
    said = log.metadata
    return {
        "repo": "",
        "workflow_id": _whole_id(said.workflow_id if said else ""),
        "run_attempt": 1,
        "job_id": _whole_id(said.job_id if said else ""),
        "workflow_name": said.workflow_name if said else "",
        "job_name": said.job_name if said else "",
    }


def _whole_id(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0


def _plausible(value: Any, most: float) -> Any:
    """Replace numbers that charts would not show by null."""
    if isinstance(value, dict):
        return {
            key: _plausible(inner, VALUE_MOST if key in MEBIBYTES else most) for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_plausible(inner, most) for inner in value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return value if math.isfinite(value) and 0 <= value <= most else None
