"""The parser of metrics, in the parser child: a JSON object in each line, in our form or in that of PyTorch's scripts.

Ours: `{"metric": "pytest.collect", "ts": 1790000000123, "values": {"seconds": 12.5}, "labels": {"shard": "1"}, "from":
"run_test.py:main"}`. PyTorch's `emit_metric` has its own names beside the numbers, or these under `info`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from bot.job_reports.parse.documents import Limits, read_each, read_rows
from bot.job_reports.parse.values import (
    NAME,
    MetricLine,
    Scalar,
    SkippedValue,
    as_name,
    as_number,
    as_object,
    as_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.evidence.collect.parse.contract import ParserInput
    from bot.job_reports.parse.values import Parsed

LIMITS = Limits(globs=("*.jsonl", "*.json", "*.txt"), bytes=4 * 1024 * 1024, rows=10_000, called="lines")
NAMES_MOST = 200  # metrics of one file
VALUES_MOST = 32
LABELS_MOST, LABEL_MOST = 16, 80  # and bytes of a label
RESERVED = frozenset(
    {
        "attempt", "backend", "base_name", "branch", "build_environment", "calling_file", "calling_function",
        "calling_module", "commit", "config", "head_sha", "job", "job_id", "job_name", "metric", "metric_name",
        "pr_number", "repo", "run_attempt", "run_id", "run_number", "sha", "test_config", "timestamp", "trusted",
        "workflow",
    }
)  # fmt: skip
SECONDS_BELOW = 100_000_000_000  # a time below is in seconds, not milliseconds
TIME_MOST = 2**53


def parse_metrics(given: ParserInput) -> Parsed[MetricLine]:
    """Return the usable metrics of a file."""
    names: set[str] = set()

    def read(value: Any) -> MetricLine:
        line = as_object(value, "the line")
        row = _of_emit_metric(line) if "metric_name" in line else _of_ours(line)
        if row.metric not in names and len(names) == NAMES_MOST:
            raise SkippedValue(f"over {NAMES_MOST} metrics")
        names.add(row.metric)
        return row

    return read_rows(given, LIMITS, lambda document, problems: read_each(document, problems, read))


def _of_ours(line: dict[str, Any]) -> MetricLine:
    return MetricLine(
        metric=as_name(line.get("metric"), "metric"),
        ts=_time(line.get("ts")),
        values=_values(as_object(line.get("values"), "values")),
        labels=_labels(as_object(line.get("labels") or {}, "labels")),
        source=as_text(line.get("from"), "from"),
    )


def _of_emit_metric(line: dict[str, Any]) -> MetricLine:
    """Return a line of PyTorch's `emit_metric`; what it says of its run is ignored: that is GitHub's word."""
    info = line.get("info")
    if isinstance(info, str):  # as it is uploaded
        try:
            info = msgspec.json.decode(info)
        except (msgspec.DecodeError, RecursionError):
            raise SkippedValue("info is not JSON") from None
    if info is None:
        info = {name: value for name, value in line.items() if name not in RESERVED}
    source = ":".join(
        part for name in ("calling_file", "calling_function") if (part := as_text(line.get(name), name))
    )
    values = {_as_key(name): value for name, value in as_object(info, "info").items() if _is_scalar(value)}
    return MetricLine(
        metric=as_name(_as_key(line["metric_name"]), "metric_name"),
        ts=_time(line.get("timestamp")),
        values=_values(values),
        labels={},
        source=source,
    )


def _as_key(name: Any) -> Any:
    return name.lower().replace(" ", "_") if isinstance(name, str) else name


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _time(value: Any) -> int | None:
    """Return a time in milliseconds; None for texts, as PyTorch's scripts once wrote."""
    if value is None or isinstance(value, str):
        return None
    number = as_number(value, "ts")
    if number < 0 or number > TIME_MOST:
        raise SkippedValue("ts is not a time in milliseconds")
    return int(number * 1000 if number < SECONDS_BELOW else number)


def _values(values: Mapping[str, Any]) -> dict[str, Scalar]:
    if not values or len(values) > VALUES_MOST:
        raise SkippedValue(f"values has {len(values)} entries, not 1 to {VALUES_MOST}")
    return {as_name(name, "a value's name"): _value(name, value) for name, value in values.items()}


def _value(name: str, value: Any) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return as_text(value, name)
    return as_number(value, name)


def _labels(labels: Mapping[str, Any]) -> dict[str, str]:
    if len(labels) > LABELS_MOST:
        raise SkippedValue(f"over {LABELS_MOST} labels")
    for name in labels:
        if not NAME.fullmatch(name):
            raise SkippedValue("a label's name is not of 1 to 80 characters a-z 0-9 _ . -")
        if name in RESERVED:
            raise SkippedValue(f"the label {name} is reserved: GitHub's value is used")
    return {name: _label(name, value) for name, value in labels.items()}


def _label(name: str, value: Any) -> str:
    if isinstance(value, (bool, int, float)):
        return as_text(msgspec.json.encode(value).decode(), name, most=LABEL_MOST)
    return as_text(value, name, most=LABEL_MOST)
