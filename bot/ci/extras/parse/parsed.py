"""What the parsers return to the process with the database: rows of each kind, and what was left out."""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec

R = TypeVar("R")
PROBLEMS_MOST = 20  # kept; all are counted
NAME = re.compile(r"[a-z0-9_.-]{1,80}")
Scalar = float | int | str | bool | None


class Problem(msgspec.Struct, frozen=True):
    """Something that was left out."""

    member: str
    line: int  # 0: the whole member
    reason: str


class Parsed(msgspec.Struct, Generic[R], kw_only=True):
    """What a parser returns: rows, and what was left out."""

    rows: list[R]
    problems: list[Problem]  # the first of them
    problem_count: int


class MetricLine(msgspec.Struct, kw_only=True):
    """One emitted metric."""

    metric: str
    ts: int | None  # milliseconds, as the script says
    values: dict[str, Scalar]
    labels: dict[str, str]
    source: str  # file and function


class CacheStats(msgspec.Struct, kw_only=True):
    """What the documents of one tool say, added up."""

    tool: str  # sccache | ccache
    version: str = ""
    requests: int = 0
    executed: int = 0
    hits: dict[str, int] = msgspec.field(default_factory=dict)  # by language
    misses: dict[str, int] = msgspec.field(default_factory=dict)
    errors: int = 0
    not_cacheable: int = 0
    reasons: dict[str, int] = msgspec.field(default_factory=dict)  # why not
    write_seconds: float = 0.0
    read_seconds: float = 0.0
    documents: int = 0
    raw: dict[str, Any] | None = None  # the last document


class BenchmarkRecord(msgspec.Struct, kw_only=True):
    """The values of a metric in one run."""

    benchmark: str
    mode: str
    dtype: str
    model: str
    backend: str
    metric: str
    device: str
    arch: str
    n: int
    median: float | None  # null: there is only a status
    min: float | None
    max: float | None
    stdev: float | None
    target: float | None
    status: str  # such as pass, of metrics that are words
    extra: dict[str, Any] | None
