"""Tables of compiler caches: what each job's said, sums by day, and how each build stands."""

from __future__ import annotations

from typing import Any, TypedDict

import sqlalchemy as sa

from bot.ci.extras.tables import OfRepository, SourceKey, SourceMeasured
from bot.db.rows import Big, Float, Int, Json, Millis, Text, table


class _Tool(TypedDict):
    tool: Text  # sccache | ccache


class _Build(TypedDict):
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


class _Raw(TypedDict):
    version: Text
    raw: Json[dict[str, Any]] | None  # all fields, flattened


class CacheJob(_Build, SourceMeasured, CacheCounts):
    """What of a job its day is counted from."""


class CacheStatsRow(SourceKey, _Tool, _Build, SourceMeasured, CacheCounts, _Raw):
    """What the cache of a job said, its documents added up."""


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


class CacheDayRow(OfRepository, _Build, CacheDay):
    """A day of a build of a repository."""


ci_cache_day = table("ci_cache_day", CacheDayRow, key=("repository_id", "base_name", "day"))


class CacheTrend(_Build):
    """How the newest trusted run of a build stands, in one language; empty: all together."""

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
