"""What does the first line of a usage log say: which model it is written in, and about what?"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

EXTRA_MOST = 4096  # bytes of the fields that model 1.5 does not have, as JSON
TEXT_MOST = 512


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The first line, every field of its type. Its ids and names are claims of the job that wrote it."""

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


KNOWN = frozenset(Metadata.__struct_fields__) - {"extra"}


class NotReadable(Exception):
    """The first line does not begin a log that is charted."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def metadata_of(line: Any) -> Metadata:
    """Return what a decoded first line says; raises NotReadable."""
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
    interval = number(line.get("usage_collect_interval"))
    extra = {str(key)[:TEXT_MOST]: value for key, value in line.items() if key not in KNOWN}
    return Metadata(
        workflow_id=text(line.get("workflow_id")),
        job_id=text(line.get("job_id")),
        workflow_name=text(line.get("workflow_name")),
        job_name=text(line.get("job_name")),
        usage_collect_interval=1.0 if interval is None else interval,
        data_model_version=version,
        start_at=(moment(line.get("start_at")) or (0, False))[0],
        gpu_count=whole_number(line.get("gpu_count")),
        cpu_count=whole_number(line.get("cpu_count")),
        gpu_type=text(line.get("gpu_type")) if line.get("gpu_type") is not None else None,
        error=text(line.get("error")) or None,
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
    return number(value)


def moment(value: Any) -> tuple[int, bool] | None:
    """Return a time in seconds since the epoch, and whether it was given in milliseconds."""
    found = number(value)
    if found is None:
        return None
    milliseconds = found > 1e12
    seconds = int(found / 1000 if milliseconds else found)
    return (seconds, milliseconds) if 0 < seconds < 2**32 else None


def number(value: Any) -> float | None:
    """Return a finite number that is not negative, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def whole_number(value: Any) -> int | None:
    """Return a whole number of things, else None: unknown."""
    found = number(value)
    return int(found) if found is not None and found <= 1_000_000 else None


def text(value: Any) -> str:
    """Return a text of bounded length; ids may come as numbers."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64:
        return str(value)
    return value[:TEXT_MOST] if isinstance(value, str) else ""
