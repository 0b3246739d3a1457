"""Statements about series of benchmarks: their ids, points, and how they stand."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from bot.db.rows import select
from bot.ingest.retention import delete_rows
from bot.job_reports.tables import (
    NamedSeriesPoint,
    NamedSeriesTrend,
    SeriesPoint,
    SeriesPointRow,
    SeriesRow,
    SeriesTrendRow,
    benchmark_point,
    benchmark_series,
    benchmark_trend,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.job_reports.tables import SeriesSubject, SourceRow

VALUES_AT_ONCE = 500  # values of one statement
NEWEST_POINTS = 60  # points that say how a series stands
TRENDS_MOST = 5_000  # series of one page
POINTS_MOST = 5_000
DIGEST_DIGITS = 16  # digits of a digest in addresses
SERIES_NAMES = ("benchmark", "mode", "dtype", "model", "backend", "metric", "device", "arch")
SERIES, POINT, TREND = benchmark_series.c, benchmark_point.c, benchmark_trend.c


def digest_of(names: Mapping[str, Any]) -> bytes:
    """Return the digest of a series' names."""
    encoded = msgspec.json.encode([names[name] for name in SERIES_NAMES])
    return hashlib.sha256(encoded).digest()[:16]


async def known_ids(tx: Transaction, digests: Collection[bytes]) -> dict[bytes, int]:
    """Return the ids of those series that are known, by digest."""
    ids: dict[bytes, int] = {}
    for some in _chunks(sorted(digests)):
        rows = await tx.run(sa.select(SERIES.digest, SERIES.id).where(SERIES.digest.in_(some)))
        ids |= {bytes(digest): identifier for digest, identifier in rows}
    return ids


async def add_series(tx: Transaction, new: Mapping[bytes, Mapping[str, str]]) -> dict[bytes, int]:
    """Store series, by digest, and return their ids."""
    for some in _chunks(sorted(new)):
        rows = [{"digest": digest, **{name: new[digest][name] for name in SERIES_NAMES}} for digest in some]
        await tx.run(tx.insert(benchmark_series).on_conflict_do_nothing(), rows)
    return await known_ids(tx, new)


async def series_of_source(tx: Transaction, repository_id: int, object_id: int) -> set[int]:
    """Return the series of a file's points."""
    query = sa.select(POINT.series_id).where(
        POINT.repository_id == repository_id, POINT.object_id == object_id
    )
    return set((await tx.run(query)).scalars())


async def newest_points(
    tx: Transaction,
    repository_id: int,
    series: Collection[int],
    *,
    limit: int = NEWEST_POINTS,
    before: int | None = None,
) -> dict[int, list[SeriesPoint]]:
    """Return the newest trusted points of some series in a repository, oldest first."""
    points: dict[int, list[SeriesPoint]] = {}
    place = sa.func.row_number().over(
        partition_by=POINT.series_id, order_by=(POINT.at.desc(), POINT.object_id.desc())
    )
    for some in _chunks(sorted(series)):
        these = [POINT.repository_id == repository_id, POINT.series_id.in_(some), POINT.trusted]
        if before is not None:
            these.append(POINT.at < before)
        ranked = sa.select(benchmark_point, place.label("place")).where(*these).subquery()
        query = select(SeriesPoint, ranked).where(ranked.c.place <= limit)
        for point in await tx.fetch(query.order_by(ranked.c.at, ranked.c.object_id)):
            points.setdefault(point["series_id"], []).append(point)
    return points


async def series_by_id(tx: Transaction, ids: Collection[int]) -> dict[int, SeriesRow]:
    """Return some series."""
    series: dict[int, SeriesRow] = {}
    for some in _chunks(sorted(ids)):
        rows = await tx.fetch(select(SeriesRow, benchmark_series).where(SERIES.id.in_(some)))
        series |= {row["id"]: row for row in rows}
    return series


async def store_trends(
    tx: Transaction, repository_id: int, series: Collection[int], trends: Sequence[SeriesTrendRow]
) -> None:
    """Replace the trends of some series."""
    for some in _chunks(sorted(series)):
        await tx.run(
            sa.delete(benchmark_trend).where(TREND.repository_id == repository_id, TREND.series_id.in_(some))
        )
    if trends:
        await tx.run(sa.insert(benchmark_trend), [dict(trend) for trend in trends])


async def read_trends(
    tx: Transaction, owners: Collection[int], asked: SeriesSubject, *, since: int, limit: int = TRENDS_MOST
) -> list[NamedSeriesTrend]:
    """Return the trends of series measured lately, regressions first; empty names of `asked` match any."""
    query = select(NamedSeriesTrend, benchmark_series, benchmark_trend).select_from(
        benchmark_trend.join(benchmark_series, SERIES.id == TREND.series_id)
    )
    query = query.where(TREND.repository_id.in_(sorted(owners)), TREND.at >= since, *_matches_subject(asked))
    size = sa.func.abs(sa.func.coalesce(TREND.step_change, 0.0))
    return await tx.fetch(
        query.order_by(TREND.worse.desc(), size.desc(), SERIES.model, SERIES.metric, SERIES.device).limit(
            limit
        )
    )


async def read_trend(tx: Transaction, owners: Collection[int], series_id: int) -> SeriesTrendRow | None:
    """Return the trend of a series in a repository."""
    query = select(SeriesTrendRow, benchmark_trend).where(
        TREND.repository_id.in_(sorted(owners)), TREND.series_id == series_id
    )
    return await tx.fetch_first(query.order_by(TREND.at.desc()).limit(1))


async def read_measured(
    tx: Transaction, owners: Collection[int], *, since: int
) -> list[tuple[str, str, int, int]]:
    """Return benchmarks and metrics measured lately, with their numbers of series and regressions, worst first."""
    worse = sa.func.sum(sa.case((TREND.worse, 1), else_=0))
    query = (
        sa.select(SERIES.benchmark, SERIES.metric, sa.func.count(), worse)
        .select_from(benchmark_trend.join(benchmark_series, SERIES.id == TREND.series_id))
        .where(TREND.repository_id.in_(sorted(owners)), TREND.at >= since)
        .group_by(SERIES.benchmark, SERIES.metric)
        .order_by(worse.desc(), SERIES.benchmark, SERIES.metric)
    )
    return [tuple(row) for row in await tx.run(query.limit(VALUES_AT_ONCE))]


async def series_by_digest(tx: Transaction, shown: str) -> SeriesRow | None:
    """Return a series by the beginning of its digest, as in addresses."""
    first = bytes.fromhex(shown)
    last = first + b"\xff" * (16 - len(first))
    return await tx.fetch_first(
        select(SeriesRow, benchmark_series).where(SERIES.digest >= first, SERIES.digest <= last)
    )


async def series_beside(tx: Transaction, of: SeriesRow, *, limit: int) -> list[SeriesRow]:
    """Return the series of the same model and metric on any device, itself included."""
    same = [SERIES[name] == of[name] for name in ("benchmark", "model", "metric", "mode", "dtype")]
    query = select(SeriesRow, benchmark_series).where(*same)
    return await tx.fetch(
        query.order_by(SERIES.id != of["id"], SERIES.device, SERIES.arch, SERIES.backend).limit(limit)
    )


async def points_of_series(
    tx: Transaction, owners: Collection[int], series: Collection[int], *, first: int, trusted: bool = True
) -> list[SeriesPointRow]:
    """Return the points of some series from a day on, newest first."""
    query = select(SeriesPointRow, benchmark_point).where(
        POINT.repository_id.in_(sorted(owners)), POINT.series_id.in_(sorted(series)), POINT.day >= first
    )
    if trusted:
        query = query.where(POINT.trusted)
    return await tx.fetch(query.order_by(POINT.at.desc(), POINT.object_id.desc()).limit(POINTS_MOST))


async def points_on_commit(tx: Transaction, owners: Collection[int], sha: str) -> list[SeriesPoint]:
    """Return the points on a commit, given in full or by its beginning; the newest first."""
    query = select(SeriesPoint, benchmark_point).where(
        POINT.repository_id.in_(sorted(owners)), POINT.head_sha >= sha, POINT.head_sha < sha + "g"
    )
    return await tx.fetch(query.order_by(POINT.at.desc(), POINT.object_id.desc()).limit(POINTS_MOST))


async def named_points_of_source(tx: Transaction, source: SourceRow) -> list[NamedSeriesPoint]:
    """Return the points of a file with the names of their series."""
    joined = benchmark_point.join(benchmark_series, SERIES.id == POINT.series_id)
    query = select(NamedSeriesPoint, benchmark_point, benchmark_series).select_from(joined)
    query = query.where(
        POINT.repository_id == source["repository_id"], POINT.object_id == source["object_id"]
    )
    return await tx.fetch(query.order_by(POINT.series_id))


async def points_of_sources(tx: Transaction, keys: Collection[tuple[int, int]]) -> list[SeriesPoint]:
    """Return the points of some files."""
    if not keys:
        return []
    query = select(SeriesPoint, benchmark_point).where(
        tx.among([POINT.repository_id, POINT.object_id], sorted(keys))
    )
    return await tx.fetch(query.order_by(POINT.series_id).limit(POINTS_MOST))


async def delete_unused(context: Context) -> dict[str, int]:
    """Delete series without points and trends."""
    unused = ~sa.exists().where(POINT.series_id == SERIES.id) & ~sa.exists().where(
        TREND.series_id == SERIES.id
    )
    return {"series of benchmarks": await delete_rows(context, benchmark_series, unused)}


def _matches_subject(asked: SeriesSubject) -> list[sa.ColumnElement[bool]]:
    return [SERIES[name] == value for name, value in asked.items() if value]


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for at in range(0, len(values), VALUES_AT_ONCE):
        yield values[at : at + VALUES_AT_ONCE]
