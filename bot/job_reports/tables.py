"""Tables of job reports: the files that jobs left, the rows read from them, daily sums, and trends."""

from __future__ import annotations

from typing import Any, TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Bytes, Float, Int, Json, Millis, Text, table


class SourceKey(TypedDict):
    """Which file it is."""

    repository_id: Big
    object_id: Big  # GitHub's id of the artifact; below 0: of an upload


class OfRepository(TypedDict):
    """The repository that days and trends are of."""

    repository_id: Big


class SourceJob(TypedDict):
    """The job that left it."""

    run_id: Big  # below 0: of another CI, as the next
    run_attempt: Int
    job_id: Big  # below 0: of no job that is known
    seconds: Int | None  # that it took


class SourceNames(TypedDict):
    """What the job is called."""

    repo: Text
    workflow: Text
    job_name: Text
    base_name: Text  # what is built: the same for all shards and configurations
    config: Text


class SourceMeasured(TypedDict):
    """When, on which commit, and whether to be trusted: what each row of a file repeats."""

    day: Int  # since 1970, UTC, on which the job began
    at: Millis  # when it began
    trusted: Bool  # may feed baselines and daily sums
    head_sha: Text  # of the repository itself


class SourceSubject(TypedDict):
    """What the job tested, by GitHub's word and our own dispatches; nothing here is read from the file."""

    upstream_sha: Text | None  # what of upstream it tested; its own runs: head_sha
    upstream_repo: Text | None
    head_branch: Text | None
    pr_number: Big | None  # upstream's


class SourceProblem(TypedDict):
    """Something that was skipped."""

    member: str
    line: int
    reason: str


class SourceRead(TypedDict):
    """The result of reading it."""

    kind: Text
    artifact: Text  # its name
    sha256: Text
    records: Int
    problems: Json[list[SourceProblem]]  # the first of them
    problem_count: Int
    received_at: Millis


class SourceRow(SourceKey, SourceJob, SourceNames, SourceMeasured, SourceSubject, SourceRead):
    """A file of small documents that a job left."""


SOURCE_KEY = ("repository_id", "object_id")
ci_source = table(
    "ci_source",
    SourceRow,
    sa.Index("ix_ci_source_run", "repository_id", "run_id"),
    sa.Index("ix_ci_source_head_sha", "head_sha"),
    sa.Index("ix_ci_source_upstream_sha", "upstream_sha"),
    sa.Index("ix_ci_source_received_at", "received_at"),
    key=SOURCE_KEY,
)


class _CacheTool(TypedDict):
    tool: Text  # sccache | ccache


class _CacheBuild(TypedDict):
    base_name: Text  # what is built


class CacheCounts(TypedDict):
    """What a cache says of a build."""

    requests: Big
    executed: Big
    hits: Json[dict[str, int]]  # by language
    misses: Json[dict[str, int]]
    errors: Big  # of reading and writing, with timeouts
    not_cacheable: Big
    reasons: Json[dict[str, int]]  # why not
    write_seconds: Float
    read_seconds: Float


class _CacheRaw(TypedDict):
    version: Text
    raw: Json[dict[str, Any]] | None  # all fields, flattened


class CacheJob(_CacheBuild, SourceMeasured, CacheCounts):
    """What a day is counted from, of one job."""


class CacheStatsRow(SourceKey, _CacheTool, _CacheBuild, SourceMeasured, CacheCounts, _CacheRaw):
    """The statistics of a job's cache, the sum of its documents."""


ci_cache_stats = table(
    "ci_cache_stats",
    CacheStatsRow,
    sa.Index("ix_ci_cache_stats_build", "repository_id", "base_name", "day"),
    sa.Index("ix_ci_cache_stats_day", "day"),
    key=("repository_id", "object_id", "tool"),
)


class CacheDay(TypedDict):
    """A day of a build, trusted runs alone."""

    day: Int
    jobs: Int
    seconds: Big  # that the jobs took, as far as that is known
    hits: Json[dict[str, int]]
    misses: Json[dict[str, int]]
    errors: Big
    not_cacheable: Big
    reasons: Json[dict[str, int]]


class CacheDayRow(OfRepository, _CacheBuild, CacheDay):
    """A day of a build of a repository."""


ci_cache_day = table("ci_cache_day", CacheDayRow, key=("repository_id", "base_name", "day"))


class CacheTrend(_CacheBuild):
    """The newest trusted run of a build in one language; empty: all together."""

    language: Text
    at: Millis
    head_sha: Text
    hits: Big
    misses: Big
    rate: Float | None  # null: nothing was looked up
    usual: Float | None  # median of the ten runs before, or before it fell; null: there are too few
    fell_at: Millis | None  # since when it is 20 points lower
    fell_sha: Text | None


class CacheTrendRow(OfRepository, CacheTrend):
    """The same of a repository."""


ci_cache_trend = table("ci_cache_trend", CacheTrendRow, key=("repository_id", "base_name", "language"))


class _LineNumber(TypedDict):
    seq: Int  # of the line


class _MetricName(TypedDict):
    metric: Text


class MetricTime(TypedDict):
    """When it was emitted."""

    day: Int  # on which the job began, by GitHub's word
    at: Millis  # when it was emitted, as the script says, or when the job began
    trusted: Bool


class MetricValues(TypedDict):
    """What a line says."""

    config: Text  # of the job
    values: Json[dict[str, float | str | bool | None]]
    labels: Json[dict[str, str]]
    source: Text  # file and function


class MetricLineRow(_MetricName, MetricTime, MetricValues):
    """A line, wherever it is from."""


class MetricRow(SourceKey, _LineNumber, MetricLineRow):
    """A line of a job's file."""


ci_metric = table(
    "ci_metric",
    MetricRow,
    sa.Index("ix_ci_metric_day", "repository_id", "metric", "day"),
    sa.Index("ix_ci_metric_of_day", "day"),
    key=("repository_id", "object_id", "seq"),
)


class _MetricValueName(TypedDict):
    value_name: Text


class _MetricGroupKey(TypedDict):
    group_key: Text  # empty: all; else a label and its value, `shard=1`


class MetricSums(TypedDict):
    """The numbers of a day."""

    count: Int
    sum: Float
    min: Float
    max: Float
    sample: Json[list[float]]  # at most 64 of them, evenly spaced in ascending order


class MetricGroup(_MetricValueName, _MetricGroupKey, MetricSums):
    """A value in a group."""


class MetricDay(MetricGroup):
    """A day of a metric."""

    day: Int


class MetricDayRow(OfRepository, _MetricName, MetricDay):
    """A day of a repository's metric, trusted runs alone."""


ci_metric_day = table(
    "ci_metric_day", MetricDayRow, key=("repository_id", "metric", "day", "value_name", "group_key")
)


class MetricTrend(_MetricName, _MetricValueName):
    """The newest week of a value beside the four before it."""

    last_day: Int
    count: Big  # of the week
    recent: Float  # median of the seven days up to the last
    before: Float | None  # of the 28 before; null: there are too few
    change: Float | None  # share of that
    since_day: Int | None  # the first day of the present level, where it differs by a tenth
    days: Json[list[tuple[int, float]]]  # medians of the newest 35


class MetricTrendRow(OfRepository, MetricTrend):
    """The same of a repository."""


ci_metric_trend = table(
    "ci_metric_trend",
    MetricTrendRow,
    sa.Index("ix_ci_metric_trend_change", "repository_id", "change"),
    key=("repository_id", "metric", "value_name"),
)


class SeriesSubject(TypedDict):
    """What is measured, and on what."""

    benchmark: Text
    model: Text
    metric: Text
    device: Text


class SeriesVariant(TypedDict):
    """In which way."""

    mode: Text
    dtype: Text
    backend: Text  # of the model's compiler, such as inductor
    arch: Text


class SeriesName(SeriesSubject, SeriesVariant):
    """What identifies a series."""


class SeriesRow(SeriesName):
    """A series of measurements, in whichever repository."""

    id: Big
    digest: Bytes  # of the names


benchmark_series = table(
    "benchmark_series",
    SeriesRow,
    sa.UniqueConstraint("digest", name="uq_benchmark_series"),
    sa.Index("ix_benchmark_series_model", "benchmark", "model", "metric"),
    key=("id",),
)
benchmark_series.dialect_options["sqlite"]["autoincrement"] = True  # no id is ever used again


class _SeriesId(TypedDict):
    series_id: Big


class SeriesPointValue(TypedDict):
    """What was measured."""

    n: Int
    median: Float | None  # null: there is only a status
    status: Text


class _SeriesPointDetails(TypedDict):
    min: Float | None
    max: Float | None
    stdev: Float | None
    target: Float | None
    extra: Json[dict[str, Any]] | None


class SeriesPoint(_SeriesId, SourceKey, SourceMeasured, SeriesPointValue):
    """A point, without its details."""


class SeriesPointRow(_SeriesId, SourceKey, SourceMeasured, SeriesPointValue, _SeriesPointDetails):
    """What one job measured of a series."""


benchmark_point = table(
    "benchmark_point",
    SeriesPointRow,
    sa.Index("ix_benchmark_point_series", "repository_id", "series_id", "at"),
    sa.Index("ix_benchmark_point_source", "repository_id", "object_id"),
    sa.Index("ix_benchmark_point_head_sha", "repository_id", "head_sha"),
    sa.Index("ix_benchmark_point_day", "day"),
    key=("series_id", "repository_id", "object_id"),
)


class SeriesTrend(TypedDict):
    """The newest trusted point of a series, beside those before."""

    at: Millis
    head_sha: Text
    value: Float | None
    status: Text
    usual: Float | None  # median of the ten points before; null: there are too few
    change: Float | None  # share of that
    step_change: Float | None  # of the newest change of level that still holds
    step_at: Millis | None
    step_sha: Text | None  # the first commit of the new level
    worse: Bool  # whether that is a regression


class SeriesTrendRow(OfRepository, _SeriesId, SeriesTrend):
    """How a series stands in a repository."""


benchmark_trend = table(
    "benchmark_trend",
    SeriesTrendRow,
    sa.Index("ix_benchmark_trend_at", "repository_id", "at"),
    key=("repository_id", "series_id"),
)


class NamedSeriesTrend(SeriesRow, SeriesTrendRow):
    """The same with the names of its series."""


class NamedSeriesPoint(SeriesName, SeriesPointRow):
    """A point with the names of its series."""


class MissedTestKey(TypedDict):
    """Which test of which pull request."""

    repository_id: Big
    pr_number: Big
    test_id: Big


class MissedFailure(MissedTestKey):
    """Where it failed, on a trusted branch."""

    file: Text
    head_sha: Text  # the commit of the pull request there
    run_id: Big
    at: Millis


class MissedTestRow(MissedFailure):
    """A test that selection missed."""

    left_out_run_id: Big  # the run of the pull request that left the file out
    day: Int


td_miss = table(
    "td_miss",
    MissedTestRow,
    sa.Index("ix_td_miss_run", "repository_id", "run_id"),
    sa.Index("ix_td_miss_day", "day"),
    key=("repository_id", "pr_number", "test_id"),
)


class Contribution(TypedDict):
    """A pull request of an outside contributor, open or merged."""

    number: Big
    login: Text
    state: Text  # open | merged
    created_at: Millis
    day: Int | None  # on which it was merged
    merged_at: Millis | None
    reviewed_at: Millis | None  # first, by a member


class ContributionRow(OfRepository, Contribution):
    """The same of a repository."""


contribution_pull = table(
    "contribution_pull",
    ContributionRow,
    sa.Index("ix_contribution_pull_day", "repository_id", "day"),
    sa.Index("ix_contribution_pull_login", "repository_id", "login", "day"),
    sa.Index("ix_contribution_pull_waiting", "repository_id", "state", "created_at"),
    key=("repository_id", "number"),
)


class ContributionDay(TypedDict):
    """What was merged on a day."""

    day: Int
    pr_count: Int
    users: Json[list[str]]
    new_users: Int  # of whom nothing was merged before
    review_hours: Json[list[float]]  # to the first review by a member, of those that had one
    merge_hours: Json[list[float]]


class ContributionDayRow(OfRepository, ContributionDay):
    """The same of a repository."""


contribution_day = table("contribution_day", ContributionDayRow, key=("repository_id", "day"))


class StableKey(TypedDict):
    """Which commit of which branch."""

    repository_id: Big
    branch: Text
    sha: Text


class StablePush(TypedDict):
    """When it became the last good commit."""

    committed_at: Millis
    title: Text
    jobs_passed: Int  # jobs that passed on it
    day: Int
    at: Millis  # when that was found


class StablePushRow(StableKey, StablePush):
    """A move of a branch's last good commit."""


stable_push = table(
    "stable_push",
    StablePushRow,
    sa.Index("ix_stable_push_at", "repository_id", "at"),
    sa.Index("ix_stable_push_day", "day"),
    key=("repository_id", "branch", "sha"),
)


class RunningListing(TypedDict):
    """When the artifacts of a running attempt were last listed."""

    repository_id: Big
    run_id: Big
    run_attempt: Int
    at: Millis


running_listing = table(
    "running_listing",
    RunningListing,
    sa.Index("ix_running_listing_at", "at"),
    key=("repository_id", "run_id", "run_attempt"),
)
