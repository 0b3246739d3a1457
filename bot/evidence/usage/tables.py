"""Tables of utilization: what a machine did while a job ran, and sums of that by day and week."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Bytes, Float, Int, Json, Millis, Text, table


class Peak(TypedDict):
    """The record with the most memory in use."""

    at: int  # seconds
    percent: float
    commands: list[str]  # some of those that ran then


class JobKey(TypedDict):
    """An attempt of a job."""

    repository_id: Big
    run_id: Big
    run_attempt: Int
    job_id: Big  # below 0: of no job that is known, minus the artifact's id


class JobNames(TypedDict):
    """What a job is called, and what it ran on."""

    repo: Text
    workflow_name: Text
    job_name: Text
    base_name: Text  # without shard and runner: the same for all shards
    config: Text
    runner_label: Text
    head_sha: Text
    head_branch: Text


class _Trust(TypedDict):
    trusted: Bool


class _Source(TypedDict):
    source_id: Big  # GitHub's id of the artifact that is used; below 0: of an upload


class _Digest(TypedDict):
    digest: Text  # of the records that are kept


class Outcome(TypedDict):
    """How reading a log ended."""

    status: Text  # ok | no_records | legacy | refused
    reason: Text
    flags: Json[list[str]]


class _Model(TypedDict):
    collect_interval: Float | None  # seconds
    model_version: Text | None


class _Machine(TypedDict):
    gpu_count: Int | None
    cpu_count: Int | None
    gpu_type: Text | None


class Extent(TypedDict):
    """The times that a log spans, and what is in it; seconds, like all times of the log."""

    start_at: Big
    end_at: Big  # of the last valid record
    records: Int  # valid ones
    error_records: Int


class Measures(TypedDict):
    """Percent: means over time, percentiles and maxima; of accelerators, the busiest one of a record counts."""

    cpu_avg: Float | None
    cpu_p90: Float | None
    cpu_max: Float | None
    mem_avg: Float | None
    mem_p90: Float | None
    mem_max: Float | None
    gpu_avg: Float | None
    gpu_p90: Float | None
    gpu_max: Float | None
    gpu_bw_avg: Float | None
    gpu_bw_p90: Float | None
    gpu_bw_max: Float | None
    gpu_alloc_avg: Float | None
    gpu_alloc_p90: Float | None
    gpu_alloc_max: Float | None


class Durations(TypedDict):
    """Seconds of a log."""

    observed_s: Float
    idle_gpu_s: Float  # of all accelerators together
    gpu_s: Float  # observed, of all accelerators together, also of those without a number
    no_data_s: Float
    saturated_s: Float


class _Memory(TypedDict):
    oom_risk: Bool
    peak: Json[Peak] | None


class _Details(TypedDict):
    segments: Json[list[tuple[str, int, int]]]  # name, start, end; seconds
    histograms: Bytes  # see bot.evidence.usage.parse.summary; what this job adds to sums
    totals: Json[list[int]]


class _Ended(TypedDict):
    machine_s: Big  # how long the job had its runner
    day: Int  # days since 1970, on which the job ended


class _Blob(TypedDict):
    blob: Text | None


class _Received(TypedDict):
    received_at: Millis


class LogRow(_Digest, Outcome, _Model, _Machine, Extent, Measures, Durations, _Memory, _Details):
    """What is known of a job from its log alone."""


class JobSummary(JobKey, JobNames, _Trust, Outcome, _Machine, Extent, Measures, Durations, _Memory, _Blob):
    """A job, without what only its own page needs."""


class DayJob(JobNames, _Trust, Extent, Durations, _Details, _Ended):
    """The columns of a job that its day is counted from."""


class JobRow(
    JobKey, JobNames, _Trust, _Source, _Digest, Outcome, _Model, _Machine, Extent, Measures, Durations, _Memory,
    _Details, _Ended, _Blob, _Received,
):  # fmt: skip
    """A job whose machine was watched."""


utilization_job = table(
    "utilization_job",
    JobRow,
    sa.Index("ix_utilization_job_job", "repository_id", "job_id"),
    sa.Index("ix_utilization_job_head_sha", "head_sha", "repository_id"),
    sa.Index("ix_utilization_job_run", "run_id", "run_attempt"),
    sa.Index("ix_utilization_job_day", "day"),
    sa.Index("ix_utilization_job_newest", "repository_id", "received_at"),
    key=("repository_id", "run_id", "run_attempt", "job_id"),
)


class _Repository(TypedDict):
    repository_id: Big


class _Kind(TypedDict):
    kind: Text  # job | workflow | runner


class _Span(TypedDict):
    span: Int  # days: 1, or 7 from a Monday on
    day: Int  # the first; days since 1970


class _Group(TypedDict):
    group_key: Text
    parent: Text  # of a job: its workflow


class DaySums(TypedDict):
    """Sums over the jobs of a group."""

    jobs: Int
    records: Big
    histograms: Bytes  # bins of all metrics, see bot.evidence.usage.parse.summary
    cpu_sum: Big  # of the values in them, hundredths of a percent, as the next
    mem_sum: Big
    gpu_sum: Big
    gpu_bw_sum: Big
    gpu_alloc_sum: Big
    idle_gpu_s: Big
    gpu_s: Big
    seconds: Json[dict[str, tuple[int, int]]]  # of machines, by label, and of those with accelerators


class PeriodRow(_Span, _Group, DaySums):
    """The sums of a group in a day or week."""


class DayRow(_Repository, _Kind, _Span, _Group, _Trust, DaySums):
    """Sums over the jobs of a group that ended on a day, or in a week."""


utilization_day = table(
    "utilization_day",
    DayRow,
    sa.Index("ix_utilization_day_day", "day"),
    key=("repository_id", "kind", "span", "day", "group_key", "parent", "trusted"),
)
