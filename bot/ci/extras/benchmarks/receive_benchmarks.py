"""The receiver of benchmarks, and the task that judges series once they have new points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from bot.ci.collect.receiving import MIB, Receiver
from bot.ci.extras import source_rows
from bot.ci.extras.benchmarks import judge_series, series_rows
from bot.ci.extras.benchmarks.directions import BenchmarkSettings
from bot.ci.extras.benchmarks.tables import benchmark_point
from bot.ci.extras.parse.parsed import PROBLEMS_MOST, BenchmarkRecord, Parsed, Problem
from bot.core.errors import GiveUp

if TYPE_CHECKING:
    from bot.ci.collect.receiving import Fetched
    from bot.ci.extras.benchmarks.tables import PointRow
    from bot.ci.extras.tables import SourceRow
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

TASK = "benchmarks"
NEW_MOST = 200  # series that a run may bring which is not trusted
TOGETHER = 200  # series judged in one transaction


async def store_benchmarks(
    tx: Transaction, context: Context, fetched: Fetched, parsed: Parsed[BenchmarkRecord], _blob: str | None
) -> None:
    """Store what a job measured; of trusted runs, the series are judged afterwards."""
    by_digest = {series_rows.digest_of(msgspec.structs.asdict(one)): one for one in parsed.rows}
    ids = await series_rows.known_ids(tx, by_digest)
    new = [digest for digest in by_digest if digest not in ids]
    if not fetched.trusted and len(new) > NEW_MOST:
        _leave_out(parsed, fetched.name, len(new) - NEW_MOST)
        new = new[:NEW_MOST]
    ids |= await series_rows.add_series(tx, {one: msgspec.structs.asdict(by_digest[one]) for one in new})
    stored = await source_rows.store_source(tx, context, fetched, parsed)
    if stored is None:
        return
    before = await series_rows.series_of_source(tx, stored.row["repository_id"], fetched.object_id)
    rows = [_point(stored.row, identifier, by_digest[digest]) for digest, identifier in ids.items()]
    await source_rows.replace_rows(tx, benchmark_point, stored.row, rows)
    gone = before - set(ids.values())
    if gone and stored.trusted:
        await _judge(tx, context, stored.row["repository_id"], gone)
    if stored.trusted:
        tx.enqueue(TASK, f"{stored.row['repository_id']}/{stored.row['object_id']}")


def _leave_out(parsed: Parsed[BenchmarkRecord], name: str, count: int) -> None:
    parsed.problem_count += count
    if len(parsed.problems) < PROBLEMS_MOST:
        reason = f"{count:,} series that no trusted run has: at most {NEW_MOST} at once"
        parsed.problems.append(Problem(name[:100], 0, reason))


def _point(source: SourceRow, series_id: int, record: BenchmarkRecord) -> PointRow:
    return {
        "series_id": series_id,
        "repository_id": source["repository_id"],
        "object_id": source["object_id"],
        "day": source["day"],
        "at": source["at"],
        "trusted": source["trusted"],
        "head_sha": source["head_sha"],
        "n": record.n,
        "median": record.median,
        "status": record.status,
        "min": record.min,
        "max": record.max,
        "stdev": record.stdev,
        "target": record.target,
        "extra": record.extra,
    }


async def judge_source(context: Context, task: Task) -> None:
    """Judge the series that a file has points of. Key: `repository id/object id`."""
    repository_id, object_id = _key(task.key)
    async with context.store.read() as tx:
        series = sorted(await series_rows.series_of_source(tx, repository_id, object_id))
    for at in range(0, len(series), TOGETHER):
        async with context.store.transaction() as tx:
            await _judge(tx, context, repository_id, series[at : at + TOGETHER])


async def _judge(tx: Transaction, context: Context, repository_id: int, series: set[int] | list[int]) -> None:
    chosen = context.settings.of(BenchmarkSettings).ci_benchmark_directions
    names = await series_rows.series_by_id(tx, series)
    points = await series_rows.newest_points(tx, repository_id, series)
    trends = [
        judge_series.judge(repository_id, names[one], points[one], chosen)
        for one in sorted(series)
        if one in names and one in points
    ]
    await series_rows.store_trends(tx, repository_id, series, trends)


def _key(text: str) -> tuple[int, int]:
    try:
        repository_id, object_id = map(int, text.split("/"))
    except ValueError:
        raise GiveUp(f"{text!r} names no file") from None
    return repository_id, object_id


async def prune(context: Context) -> dict[str, int]:
    """Delete points past the retention of results."""
    deleted = await source_rows.delete_old(context, {"points of benchmarks": benchmark_point})
    kept = context.settings.record_retention_days * source_rows.DAY
    return deleted | await series_rows.delete_trends(context, before=context.clock.now() - kept)


RECEIVER = Receiver(store=store_benchmarks, answer=Parsed[BenchmarkRecord], most_written=64 * MIB)
