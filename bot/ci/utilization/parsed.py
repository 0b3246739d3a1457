"""What the parser child says of a usage log."""

from __future__ import annotations

from msgspec import Struct

METRICS = ("cpu", "memory", "gpu", "gpu_mem", "gpu_alloc")  # in this order in packed histograms
SEGMENTS_MOST = 2_000


class Measure(Struct, frozen=True, kw_only=True):
    """What one metric comes to: its mean over time, a percentile and the most of the records' maxima."""

    avg: float | None
    p90: float
    max: float


class PeakFound(Struct, frozen=True, kw_only=True):
    """The record with the most memory in use."""

    at: int  # seconds
    percent: float
    commands: list[str]  # some of those that ran then


class ParsedUsage(Struct, frozen=True, kw_only=True):
    """A usage log, measured. Times are seconds, as in the log; ids are what the log claims."""

    status: str  # ok | no_records | legacy | refused | absent
    reason: str = ""
    flags: list[str] = []
    workflow_id: str = ""
    job_id: str = ""
    collect_interval: float | None = None
    model_version: str | None = None
    gpu_count: int | None = None
    cpu_count: int | None = None
    gpu_type: str | None = None
    start_at: int = 0
    end_at: int = 0
    first_at: int | None = None  # of the records
    digest: str = ""  # of the records that are kept
    records: int = 0
    error_records: int = 0
    measures: dict[str, Measure] = {}  # by metric
    peak: PeakFound | None = None
    observed_s: float = 0.0
    no_data_s: float = 0.0
    saturated_s: float = 0.0
    idle_gpu_s: float = 0.0
    gpu_s: float = 0.0  # observed, of all accelerators together
    segments: list[tuple[str, int, int]] = []  # name, start, end
    histograms: bytes = b""  # packed, of METRICS
    totals: list[int] = []  # of METRICS: sums of values, hundredths of a percent
