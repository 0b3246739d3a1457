"""The two documents that leave for other stores: one about the job, and one a record."""

from __future__ import annotations

import json
import math
from typing import IO, TYPE_CHECKING, Any

from bot.ci.utilization.parse.columns import MEBIBYTES, PERCENT_MOST, VALUE_MOST
from bot.ci.utilization.parse.usage_log import decoded, is_error, valid_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.ci.utilization.parse.segments import Segment
    from bot.ci.utilization.parse.usage_log import UsageLog

COMPACT = (",", ":")


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
            {name: getattr(one, name) for name in ("level", "name", "start_at", "end_at", "extra_info")}
            for one in segments
        ],
        "tags": [],
    }
    return json.dumps({"created_at": created_at} | document, separators=COMPACT)


def record_lines(file: IO[bytes], log: UsageLog, *, created_at: int) -> Iterator[str]:
    """Yield a document for every valid record of a log's file, in the file's order."""
    claims = _claims(log)
    for line in decoded(file, set()):
        valid = None if is_error(line) else valid_record(line)
        if valid is None:
            continue
        document = {
            "created_at": created_at,
            "type": "utilization",
            "tags": ["record"],
            "time_stamp": valid[0],
            **claims,
            "json_data": json.dumps(_checked(valid[2], PERCENT_MOST), allow_nan=False),
        }
        yield json.dumps(document, separators=COMPACT)


def _claims(log: UsageLog) -> dict[str, Any]:
    """Return whose log it is. Without a run to belong to, that is what it says itself."""
    said = log.metadata
    return {
        "repo": "",
        "workflow_id": _id(said.workflow_id if said else ""),
        "run_attempt": 1,
        "job_id": _id(said.job_id if said else ""),
        "workflow_name": said.workflow_name if said else "",
        "job_name": said.job_name if said else "",
    }


def _id(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0


def _checked(value: Any, most: float) -> Any:
    """Return data with null for every number that the charts would not show either."""
    if isinstance(value, dict):
        return {
            key: _checked(inner, VALUE_MOST if key in MEBIBYTES else most) for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_checked(inner, most) for inner in value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return value if math.isfinite(value) and 0 <= value <= most else None
