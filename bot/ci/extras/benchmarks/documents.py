"""Benchmarks that jobs leave: points of series, and the task that judges a series once it has a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from bot.ci.collect.receiving import MIB, Receiver
from bot.ci.extras import source_rows
from bot.ci.extras.benchmarks import judge_series, series_rows
from bot.ci.extras.benchmarks.directions import BenchmarkSettings
from bot.ci.extras.benchmarks.tables import benchmark_point, benchmark_trend
from bot.ci.extras.parse.parsed import PROBLEMS_MOST, BenchmarkRecord, Parsed, Problem
from bot.ci.extras.small_documents import SmallDocument, make_row
from bot.core.errors import GiveUp
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.ci.collect.receiving import Fetched
    from bot.ci.extras.tables import SourceRow
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

TASK = "benchmarks"
NEW_MOST = 200  # series that a run may bring which is not trusted
TOGETHER = 200  # series judged in one transaction
POINTS = SmallDocument(
    table=benchmark_point,
    called="points of benchmarks",
    answer=Parsed[BenchmarkRecord],
    most_written=64 * MIB,
    kept={"benchmarks": benchmark_trend.c.at},
)


async def store_benchmarks(
    tx: Transaction, context: Context, fetched: Fetched, parsed: Parsed[BenchmarkRecord], _blob: str | None
) -> None:
    """Store what a job measured; of trusted runs, the series are judged afterwards."""
    records = {series_rows.digest_of(msgspec.structs.asdict(one)): one for one in parsed.rows}
    ids = await _identify(tx, fetched, parsed, records)
    stored = await source_rows.store_source(tx, context, fetched, parsed)
    if stored is None:
        return
    repository_id, object_id = stored.row["repository_id"], stored.row["object_id"]
    before = await series_rows.series_of_source(tx, repository_id, object_id)
    rows = [
        make_row(benchmark_point, stored.row, records[digest], series_id=identifier)
        for digest, identifier in ids.items()
    ]
    await source_rows.replace_rows(tx, benchmark_point, stored.row, rows)
    if stored.trusted:
        await _judge(tx, context, repository_id, before - set(ids.values()))
        tx.enqueue(TASK, f"{repository_id}/{object_id}")
    _request_comment(tx, context, stored.row)


def _request_comment(tx: Transaction, context: Context, source: SourceRow) -> None:
    """Bring the comment of a pull request up to date, where it tells of benchmarks."""
    told = context.settings.of(BenchmarkSettings).ci_benchmark_comment == "changes"
    if told and source["upstream_repo"] and source["pr_number"]:
        request_publish(tx, source["upstream_repo"], source["pr_number"])


async def _identify(
    tx: Transaction,
    fetched: Fetched,
    parsed: Parsed[BenchmarkRecord],
    records: dict[bytes, BenchmarkRecord],
) -> dict[bytes, int]:
    """Return the ids of series by digest, new ones among them; some new ones may be left out of what is not trusted."""
    ids = await series_rows.known_ids(tx, records)
    new = [digest for digest in records if digest not in ids]
    if not fetched.trusted and len(new) > NEW_MOST:
        _leave_out(parsed, fetched.name, len(new) - NEW_MOST)
        new = new[:NEW_MOST]
    return ids | await series_rows.add_series(tx, {one: msgspec.structs.asdict(records[one]) for one in new})


def _leave_out(parsed: Parsed[BenchmarkRecord], name: str, count: int) -> None:
    parsed.problem_count += count
    if len(parsed.problems) < PROBLEMS_MOST:
        reason = f"{count:,} series that no trusted run has: at most {NEW_MOST} at once"
        parsed.problems.append(Problem(name[:100], 0, reason))


async def judge_source(context: Context, task: Task) -> None:
    """Judge the series that a file has points of. Key: `repository id/object id`."""
    repository_id, object_id = _key(task.key)
    async with context.store.read() as tx:
        series = sorted(await series_rows.series_of_source(tx, repository_id, object_id))
    for at in range(0, len(series), TOGETHER):
        async with context.store.transaction() as tx:
            await _judge(tx, context, repository_id, series[at : at + TOGETHER])


async def _judge(tx: Transaction, context: Context, repository_id: int, series: Collection[int]) -> None:
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
    """Delete points and standings past their retention, and series that have neither."""
    return await POINTS.prune(context) | await series_rows.delete_unused(context)


RECEIVER = Receiver(store=store_benchmarks, answer=POINTS.answer, most_written=POINTS.most_written)
