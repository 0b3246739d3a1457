"""What benchmarks add to the page of a pull request: what it makes slower, and what faster, on which device."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.collect.store import runs
from bot.ci.extras import source_rows
from bot.ci.extras.benchmarks import directions, judge_series, series_rows
from bot.ci.extras.benchmarks.directions import BenchmarkSettings
from bot.ci.extras.benchmarks.series_rows import SHOWN
from bot.ci.extras.trends import BEFORE
from bot.core.escaping import clean, shorten
from bot.oot.allowlist import rows as allowlists
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from bot.ci.extras.benchmarks.tables import Point, SeriesRow
    from bot.ci.extras.tables import SourceRow
    from bot.ci.extras.trends import Change
    from bot.db.transaction import Transaction
    from bot.web.subjects import PullSubject

KIND = "benchmark"
FILES, LINES, NAME_MOST = 50, 10, 200


class Judged(NamedTuple):
    """A series that a head changes."""

    source: SourceRow
    series: SeriesRow
    change: Change
    worse: bool | None


async def show_pull(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Return what the shown head changes against the newest trusted points, worst first."""
    if not subject.head_sha:
        return []
    found = await source_rows.sources_testing(tx, subject.head_sha, KIND, limit=FILES)
    files = {
        (one["repository_id"], one["object_id"]): one for one in found if await _is_shown(tx, one, subject)
    }
    points = await series_rows.points_of_sources(tx, files)
    if not points:
        return []
    judged = await _judge(tx, subject, files, points)
    listed = await allowlists.in_force(tx)
    labels = {entry.key: entry.label for entry in listed.entries} if listed else {}
    page = f"/{subject.repo}/benchmarks"
    lines = [_line(one, subject, labels) for one in judged[:LINES]]
    if len(judged) > LINES:
        lines.append(BlockLine(text=f"and {len(judged) - LINES:,} more", url=page))
    if not judged:
        text = f"{len(points):,} measured, none changed by more than noise"
        lines.append(BlockLine(text=text, url=page, tone="good"))
    return [Block(heading="Benchmarks", lines=tuple(lines))]


async def _is_shown(tx: Transaction, source: SourceRow, subject: PullSubject) -> bool:
    """Whether a file is of this upstream's commit, and its repository is public."""
    same = (source["upstream_repo"] or "").casefold() == subject.repo.casefold()
    return same and (await runs.repository_facts(tx, source["repository_id"])).private is False


async def _judge(
    tx: Transaction, subject: PullSubject, files: dict[tuple[int, int], SourceRow], points: list[Point]
) -> list[Judged]:
    """Return the series that changed by more than noise, the worst first."""
    chosen = subject.settings.of(BenchmarkSettings).ci_benchmark_directions
    series = await series_rows.series_by_id(tx, {one["series_id"] for one in points})
    by_repository: defaultdict[int, list[Point]] = defaultdict(list)
    for point in points:
        by_repository[point["repository_id"]].append(point)
    found = []
    for repository_id, mine in sorted(by_repository.items()):
        ids = {one["series_id"] for one in mine}
        began = min(one["at"] for one in mine)
        usual = await series_rows.newest_points(tx, repository_id, ids, limit=BEFORE, before=began)
        for point in mine:
            one = series[point["series_id"]]
            change = judge_series.compare_point(one, point, usual.get(one["id"], []))
            if change and change.counts:
                worse = directions.is_worse(one["metric"], change.by, chosen)
                found.append(Judged(files[repository_id, point["object_id"]], one, change, worse))
    return sorted(found, key=lambda one: (one.worse is not True, -abs(one.change.by), one.series["id"]))


def _line(one: Judged, subject: PullSubject, labels: dict[str, str]) -> BlockLine:
    series, repo = one.series, one.source["repo"]
    whose = "" if repo.casefold() == subject.repo.casefold() else labels.get(repo.casefold(), repo)
    chosen = subject.settings.of(BenchmarkSettings).ci_benchmark_directions
    where = " ".join(
        part for part in (series["model"], series["device"] and f"on {series['device']}") if part
    )
    words = directions.words(series["metric"], one.change.by, chosen)
    parts = (whose, where or series["benchmark"], f"{series['metric']} {words}")
    return BlockLine(
        text=shorten(" ".join(clean(" · ".join(part for part in parts if part)).split()), NAME_MOST),
        url=f"/{repo}/benchmarks/{series['digest'].hex()[:SHOWN]}",
        tone="bad" if one.worse else "good" if one.worse is False else "idle",
    )
