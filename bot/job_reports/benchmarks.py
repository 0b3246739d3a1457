"""Benchmarks that jobs leave: their series are stored and judged, and what a pull request changes is told in words."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bot.core.errors import GiveUp
from bot.core.escaping import clean, shorten
from bot.evidence.collect.receivers import MIB, Receiver
from bot.job_reports import benchmark_judgement, benchmark_rows, documents
from bot.job_reports.benchmark_rows import DIGEST_DIGITS
from bot.job_reports.documents import SmallDocument, make_row
from bot.job_reports.feature import JobReportSettings
from bot.job_reports.parse.values import PROBLEMS_MOST, BenchmarkRecord, Parsed, Problem
from bot.job_reports.tables import benchmark_point, benchmark_trend
from bot.job_reports.trends import SEEN_BEFORE
from bot.jobs import runs
from bot.oot.allowlist import versions as allowlists
from bot.oot.results.task_keys import request_publish
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.evidence.collect.receivers import Fetched
    from bot.job_reports.tables import SeriesPoint, SeriesRow, SourceRow
    from bot.job_reports.trends import ValueChange
    from bot.queue.tasks import Task
    from bot.web.blocks import HeadSubject, PullSubject

JUDGE_TASK = "benchmarks"
NEW_SERIES_MOST = 200  # series that a run may bring which is not trusted
SERIES_TOGETHER = 200  # series judged in one transaction
BENCHMARK_DOCUMENT = SmallDocument(
    table=benchmark_point,
    called="points of benchmarks",
    answer=Parsed[BenchmarkRecord],
    most_written=64 * MIB,
    kept={"benchmarks": benchmark_trend.c.at},
)
BENCHMARK_KIND = "benchmark"
FILES_MOST, LINES_SHOWN, NAME_MOST = 50, 10, 200
LINES_TOLD = 5  # lines of the comment


class MeasuredHead(NamedTuple):
    """A commit of a pull request, and what its runs measured."""

    repo: str
    settings: Settings
    files: dict[tuple[int, int], SourceRow]
    points: list[SeriesPoint]
    labels: dict[str, str]  # what backends are called


class ChangedSeries(NamedTuple):
    """A series that a head changes."""

    source: SourceRow
    series: SeriesRow
    change: ValueChange
    worse: bool | None


async def store_benchmarks(
    tx: Transaction, context: Context, fetched: Fetched, parsed: Parsed[BenchmarkRecord], _blob: str | None
) -> None:
    """Store what a job measured; series of trusted runs are judged afterwards."""
    records = {benchmark_rows.digest_of(msgspec.structs.asdict(record)): record for record in parsed.rows}
    ids = await _identify_series(tx, fetched, parsed, records)
    stored = await documents.store_source(tx, context, fetched, parsed)
    if stored is None:
        return
    repository_id, object_id = stored.row["repository_id"], stored.row["object_id"]
    before = await benchmark_rows.series_of_source(tx, repository_id, object_id)
    rows = [
        make_row(benchmark_point, stored.row, records[digest], series_id=identifier)
        for digest, identifier in ids.items()
    ]
    await documents.replace_rows(tx, benchmark_point, stored.row, rows)
    if stored.trusted:
        await _judge_and_store(tx, context, repository_id, before - set(ids.values()))
        tx.enqueue(JUDGE_TASK, f"{repository_id}/{object_id}")
    _request_comment(tx, context, stored.row)


async def judge_source(context: Context, task: Task) -> None:
    """Judge the series of a file's points. Key: `repository id/object id`."""
    repository_id, object_id = _parse_key(task.key)
    async with context.store.read() as tx:
        series = sorted(await benchmark_rows.series_of_source(tx, repository_id, object_id))
    for at in range(0, len(series), SERIES_TOGETHER):
        async with context.store.transaction() as tx:
            await _judge_and_store(tx, context, repository_id, series[at : at + SERIES_TOGETHER])


async def prune_benchmarks(context: Context) -> dict[str, int]:
    """Delete points and standings past their retention, and series that have neither."""
    return await BENCHMARK_DOCUMENT.prune(context) | await benchmark_rows.delete_unused(context)


BENCHMARK_RECEIVER = Receiver(
    store=store_benchmarks, answer=BENCHMARK_DOCUMENT.answer, most_written=BENCHMARK_DOCUMENT.most_written
)


async def show_pull(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Return what the head changes against the newest trusted points, worst first."""
    head = await _read_head(tx, subject.repo, subject.head_sha, subject.settings)
    if head is None:
        return []
    judged = await _find_changed_series(tx, head)
    page = f"/{subject.repo}/benchmarks"
    lines = [_changed_series_line(change, head) for change in judged[:LINES_SHOWN]]
    if len(judged) > LINES_SHOWN:
        lines.append(BlockLine(text=f"and {len(judged) - LINES_SHOWN:,} more", url=page))
    if not judged:
        text = f"{len(head.points):,} measured, none changed by more than noise"
        lines.append(BlockLine(text=text, url=page, tone="good"))
    return [Block(heading="Benchmarks", lines=tuple(lines))]


async def tell_comment(tx: Transaction, subject: HeadSubject) -> list[BlockLine]:
    """Return lines for the comment, if the settings ask for them and something changed."""
    if subject.settings.of(JobReportSettings).ci_benchmark_comment != "changes":
        return []
    head = await _read_head(tx, subject.repo, subject.head_sha, subject.settings)
    judged = await _find_changed_series(tx, head) if head else []
    lines = [_changed_series_line(change, head, subject.url) for change in judged[:LINES_TOLD] if head]
    if len(judged) > LINES_TOLD:
        text = f"and {len(judged) - LINES_TOLD:,} more benchmarks changed"
        lines.append(BlockLine(text=text, url=f"{subject.url}/{subject.repo}/benchmarks"))
    return lines


def _request_comment(tx: Transaction, context: Context, source: SourceRow) -> None:
    """Request the comment of a pull request, if it tells of benchmarks."""
    told = context.settings.of(JobReportSettings).ci_benchmark_comment == "changes"
    if told and source["upstream_repo"] and source["pr_number"]:
        request_publish(tx, source["upstream_repo"], source["pr_number"])


async def _identify_series(
    tx: Transaction,
    fetched: Fetched,
    parsed: Parsed[BenchmarkRecord],
    records: dict[bytes, BenchmarkRecord],
) -> dict[bytes, int]:
    """Return the ids of series by digest; adds new ones, but only some of untrusted runs."""
    ids = await benchmark_rows.known_ids(tx, records)
    new = [digest for digest in records if digest not in ids]
    if not fetched.trusted and len(new) > NEW_SERIES_MOST:
        _note_skipped_series(parsed, fetched.name, len(new) - NEW_SERIES_MOST)
        new = new[:NEW_SERIES_MOST]
    return ids | await benchmark_rows.add_series(
        tx, {digest: msgspec.structs.asdict(records[digest]) for digest in new}
    )


def _note_skipped_series(parsed: Parsed[BenchmarkRecord], name: str, count: int) -> None:
    parsed.problem_count += count
    if len(parsed.problems) < PROBLEMS_MOST:
        reason = f"{count:,} series that no trusted run has: at most {NEW_SERIES_MOST} at once"
        parsed.problems.append(Problem(name[:100], 0, reason))


async def _judge_and_store(
    tx: Transaction, context: Context, repository_id: int, series: Collection[int]
) -> None:
    chosen = context.settings.of(JobReportSettings).ci_benchmark_directions
    names = await benchmark_rows.series_by_id(tx, series)
    points = await benchmark_rows.newest_points(tx, repository_id, series)
    trends = [
        benchmark_judgement.judge_series(repository_id, names[series_id], points[series_id], chosen)
        for series_id in sorted(series)
        if series_id in names and series_id in points
    ]
    await benchmark_rows.store_trends(tx, repository_id, series, trends)


def _parse_key(text: str) -> tuple[int, int]:
    try:
        repository_id, object_id = map(int, text.split("/"))
    except ValueError:
        raise GiveUp(f"{text!r} names no file") from None
    return repository_id, object_id


async def _read_head(tx: Transaction, repo: str, sha: str | None, settings: Settings) -> MeasuredHead | None:
    """Return what runs measured on a commit; None if they measured nothing."""
    sources = await documents.sources_testing(tx, sha, BENCHMARK_KIND, limit=FILES_MOST) if sha else []
    files = {
        (file["repository_id"], file["object_id"]): file
        for file in sources
        if await _may_be_shown(tx, file, repo)
    }
    points = await benchmark_rows.points_of_sources(tx, files)
    if not points:
        return None
    listed = await allowlists.read_in_force(tx)
    labels = {entry.key: entry.label for entry in listed.entries} if listed else {}
    return MeasuredHead(repo, settings, files, points, labels)


async def _may_be_shown(tx: Transaction, source: SourceRow, repo: str) -> bool:
    """Whether a file is about this upstream's commit, and its repository is public."""
    same = (source["upstream_repo"] or "").casefold() == repo.casefold()
    return same and (await runs.repository_facts(tx, source["repository_id"])).private is False


async def _find_changed_series(tx: Transaction, head: MeasuredHead) -> list[ChangedSeries]:
    """Return the series that changed by more than noise, the worst first."""
    chosen = head.settings.of(JobReportSettings).ci_benchmark_directions
    series = await benchmark_rows.series_by_id(tx, {point["series_id"] for point in head.points})
    by_repository: defaultdict[int, list[SeriesPoint]] = defaultdict(list)
    for point in head.points:
        by_repository[point["repository_id"]].append(point)
    changed = []
    for repository_id, mine in sorted(by_repository.items()):
        ids = {point["series_id"] for point in mine}
        began = min(point["at"] for point in mine)
        usual = await benchmark_rows.newest_points(tx, repository_id, ids, limit=SEEN_BEFORE, before=began)
        for point in mine:
            measured = series[point["series_id"]]
            change = benchmark_judgement.compare_point(measured, point, usual.get(measured["id"], []))
            if change and change.counts:
                worse = benchmark_judgement.is_worse(measured["metric"], change.by, chosen)
                changed.append(
                    ChangedSeries(head.files[repository_id, point["object_id"]], measured, change, worse)
                )
    return sorted(
        changed, key=lambda change: (change.worse is not True, -abs(change.change.by), change.series["id"])
    )


def _changed_series_line(changed: ChangedSeries, head: MeasuredHead, address: str = "") -> BlockLine:
    """Return a change in words; `address` is that of this bot, where the line is shown elsewhere."""
    series, repo = changed.series, changed.source["repo"]
    whose = "" if repo.casefold() == head.repo.casefold() else head.labels.get(repo.casefold(), repo)
    chosen = head.settings.of(JobReportSettings).ci_benchmark_directions
    device = f"on {series['device']}" if series["device"] else ""
    where = " ".join(part for part in (series["model"], device) if part) or series["benchmark"]
    words = f"{series['metric']} {benchmark_judgement.change_in_words(series['metric'], changed.change.by, chosen)}"
    text = " · ".join(part for part in (whose, where, words) if part)
    return BlockLine(
        text=shorten(" ".join(clean(text).split()), NAME_MOST),
        url=f"{address}/{repo}/benchmarks/{series['digest'].hex()[:DIGEST_DIGITS]}",
        tone="bad" if changed.worse else "good" if changed.worse is False else "idle",
    )
