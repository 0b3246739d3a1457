"""Statements about series of benchmarks: their ids, points, and how they stand."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from bot.ci.extras.benchmarks.tables import (
    NamedPoint,
    NamedTrend,
    Point,
    PointRow,
    SeriesRow,
    TrendRow,
    benchmark_point,
    benchmark_series,
    benchmark_trend,
)
from bot.db.rows import select
from bot.ingest.prune import delete_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from bot.ci.extras.benchmarks.tables import SeriesSubject
    from bot.ci.extras.tables import SourceRow
    from bot.context import Context
    from bot.db.transaction import Transaction

CHUNK = 500  # values of one statement
NEWEST = 60  # points that say how a series stands
TRENDS_MOST = 5_000  # series of one page
POINTS_MOST = 5_000
SHOWN = 16  # digits of a digest in addresses
NAMES = ("benchmark", "mode", "dtype", "model", "backend", "metric", "device", "arch")
S, P, T = benchmark_series.c, benchmark_point.c, benchmark_trend.c


def digest_of(names: Mapping[str, Any]) -> bytes:
    """Return the digest of a series' names."""
    encoded = msgspec.json.encode([names[name] for name in NAMES])
    return hashlib.sha256(encoded).digest()[:16]


async def known_ids(tx: Transaction, digests: Collection[bytes]) -> dict[bytes, int]:
    """Return the ids of those series that are known, by digest."""
    found: dict[bytes, int] = {}
    for some in _chunks(sorted(digests)):
        rows = await tx.run(sa.select(S.digest, S.id).where(S.digest.in_(some)))
        found |= {bytes(digest): identifier for digest, identifier in rows}
    return found


async def add_series(tx: Transaction, new: Mapping[bytes, Mapping[str, str]]) -> dict[bytes, int]:
    """Store series, by digest, and return their ids."""
    for some in _chunks(sorted(new)):
        rows = [{"digest": digest, **{name: new[digest][name] for name in NAMES}} for digest in some]
        await tx.run(tx.insert(benchmark_series).on_conflict_do_nothing(), rows)
    return await known_ids(tx, new)


async def series_of_source(tx: Transaction, repository_id: int, object_id: int) -> set[int]:
    """Return the series that a file has points of."""
    query = sa.select(P.series_id).where(P.repository_id == repository_id, P.object_id == object_id)
    return set((await tx.run(query)).scalars())


async def newest_points(
    tx: Transaction,
    repository_id: int,
    series: Collection[int],
    *,
    limit: int = NEWEST,
    before: int | None = None,
) -> dict[int, list[Point]]:
    """Return the newest trusted points of some series in a repository, oldest first."""
    found: dict[int, list[Point]] = {}
    place = sa.func.row_number().over(partition_by=P.series_id, order_by=(P.at.desc(), P.object_id.desc()))
    for some in _chunks(sorted(series)):
        these = [P.repository_id == repository_id, P.series_id.in_(some), P.trusted]
        if before is not None:
            these.append(P.at < before)
        ranked = sa.select(benchmark_point, place.label("place")).where(*these).subquery()
        query = select(Point, ranked).where(ranked.c.place <= limit)
        for point in await tx.fetch(query.order_by(ranked.c.at, ranked.c.object_id)):
            found.setdefault(point["series_id"], []).append(point)
    return found


async def series_by_id(tx: Transaction, ids: Collection[int]) -> dict[int, SeriesRow]:
    """Return some series."""
    found: dict[int, SeriesRow] = {}
    for some in _chunks(sorted(ids)):
        rows = await tx.fetch(select(SeriesRow, benchmark_series).where(S.id.in_(some)))
        found |= {row["id"]: row for row in rows}
    return found


async def store_trends(
    tx: Transaction, repository_id: int, series: Collection[int], trends: Sequence[TrendRow]
) -> None:
    """Replace how some series stand."""
    for some in _chunks(sorted(series)):
        await tx.run(
            sa.delete(benchmark_trend).where(T.repository_id == repository_id, T.series_id.in_(some))
        )
    if trends:
        await tx.run(sa.insert(benchmark_trend), [dict(one) for one in trends])


async def trends(
    tx: Transaction, owners: Collection[int], asked: SeriesSubject, *, since: int, limit: int = TRENDS_MOST
) -> list[NamedTrend]:
    """Return how series stand that were measured lately, regressions first; empty names of `asked` stand for any."""
    query = select(NamedTrend, benchmark_series, benchmark_trend).select_from(
        benchmark_trend.join(benchmark_series, S.id == T.series_id)
    )
    query = query.where(T.repository_id.in_(sorted(owners)), T.at >= since, *_chosen(asked))
    size = sa.func.abs(sa.func.coalesce(T.step_change, 0.0))
    return await tx.fetch(
        query.order_by(T.worse.desc(), size.desc(), S.model, S.metric, S.device).limit(limit)
    )


async def trend_of(tx: Transaction, owners: Collection[int], series_id: int) -> TrendRow | None:
    """Return how a series stands in a repository."""
    query = select(TrendRow, benchmark_trend).where(
        T.repository_id.in_(sorted(owners)), T.series_id == series_id
    )
    return await tx.fetch_first(query.order_by(T.at.desc()).limit(1))


def _chosen(asked: SeriesSubject) -> list[sa.ColumnElement[bool]]:
    return [S[name] == value for name, value in asked.items() if value]


async def measured(
    tx: Transaction, owners: Collection[int], *, since: int
) -> list[tuple[str, str, int, int]]:
    """Return what was measured lately: benchmark, metric, how many series and regressions each has, the worst first."""
    worse = sa.func.sum(sa.case((T.worse, 1), else_=0))
    query = (
        sa.select(S.benchmark, S.metric, sa.func.count(), worse)
        .select_from(benchmark_trend.join(benchmark_series, S.id == T.series_id))
        .where(T.repository_id.in_(sorted(owners)), T.at >= since)
        .group_by(S.benchmark, S.metric)
        .order_by(worse.desc(), S.benchmark, S.metric)
    )
    return [tuple(row) for row in await tx.run(query.limit(CHUNK))]


async def series_by_digest(tx: Transaction, shown: str) -> SeriesRow | None:
    """Return a series by the digits of its digest that addresses have."""
    first = bytes.fromhex(shown)
    last = first + b"\xff" * (16 - len(first))
    return await tx.fetch_first(
        select(SeriesRow, benchmark_series).where(S.digest >= first, S.digest <= last)
    )


async def beside(tx: Transaction, of: SeriesRow, *, limit: int) -> list[SeriesRow]:
    """Return the series of the same model and metric on any device, the one itself among them."""
    same = [S[name] == of[name] for name in ("benchmark", "model", "metric", "mode", "dtype")]
    query = select(SeriesRow, benchmark_series).where(*same)
    return await tx.fetch(query.order_by(S.id != of["id"], S.device, S.arch, S.backend).limit(limit))


async def points_of(
    tx: Transaction, owners: Collection[int], series: Collection[int], *, first: int, trusted: bool = True
) -> list[PointRow]:
    """Return the points of some series from a day on, newest first."""
    query = select(PointRow, benchmark_point).where(
        P.repository_id.in_(sorted(owners)), P.series_id.in_(sorted(series)), P.day >= first
    )
    if trusted:
        query = query.where(P.trusted)
    return await tx.fetch(query.order_by(P.at.desc(), P.object_id.desc()).limit(POINTS_MOST))


async def points_on(tx: Transaction, owners: Collection[int], sha: str) -> list[Point]:
    """Return what was measured on a commit, which may be told by its beginning; the newest first."""
    query = select(Point, benchmark_point).where(
        P.repository_id.in_(sorted(owners)), P.head_sha >= sha, P.head_sha < sha + "g"
    )
    return await tx.fetch(query.order_by(P.at.desc(), P.object_id.desc()).limit(POINTS_MOST))


async def named_points_of_source(tx: Transaction, source: SourceRow) -> list[NamedPoint]:
    """Return the points of a file with the names of their series."""
    joined = benchmark_point.join(benchmark_series, S.id == P.series_id)
    query = select(NamedPoint, benchmark_point, benchmark_series).select_from(joined)
    query = query.where(P.repository_id == source["repository_id"], P.object_id == source["object_id"])
    return await tx.fetch(query.order_by(P.series_id))


async def points_of_sources(tx: Transaction, keys: Collection[tuple[int, int]]) -> list[Point]:
    """Return the points of some files."""
    if not keys:
        return []
    query = select(Point, benchmark_point).where(tx.among([P.repository_id, P.object_id], sorted(keys)))
    return await tx.fetch(query.order_by(P.series_id).limit(POINTS_MOST))


async def delete_unused(context: Context) -> dict[str, int]:
    """Delete series without any point that do not stand anywhere."""
    unused = ~sa.exists().where(P.series_id == S.id) & ~sa.exists().where(T.series_id == S.id)
    return {"series of benchmarks": await delete_rows(context, benchmark_series, unused)}


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for at in range(0, len(values), CHUNK):
        yield values[at : at + CHUNK]
