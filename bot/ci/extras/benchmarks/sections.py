"""What benchmarks say of a pull request, on its page and in its comment: what it makes slower, and on which device."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.collect.store import runs
from bot.ci.extras import source_rows
from bot.ci.extras.benchmarks import directions, judge_series, series_rows
from bot.ci.extras.benchmarks.directions import BenchmarkSettings
from bot.ci.extras.benchmarks.series_rows import SHOWN
from bot.ci.extras.trends import SEEN
from bot.core.escaping import clean, shorten
from bot.oot.allowlist import rows as allowlists
from bot.web.blocks import Block, BlockLine

if TYPE_CHECKING:
    from bot.ci.extras.benchmarks.tables import Point, SeriesRow
    from bot.ci.extras.tables import SourceRow
    from bot.ci.extras.trends import Change
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.subjects import HeadSubject, PullSubject

KIND = "benchmark"
FILES, LINES, NAME_MOST = 50, 10, 200
TOLD = 5  # lines of the comment


class Head(NamedTuple):
    """A commit of a pull request, and what its runs measured."""

    repo: str
    settings: Settings
    files: dict[tuple[int, int], SourceRow]
    points: list[Point]
    labels: dict[str, str]  # what backends are called


class Judged(NamedTuple):
    """A series that a head changes."""

    source: SourceRow
    series: SeriesRow
    change: Change
    worse: bool | None


async def show_pull(tx: Transaction, subject: PullSubject) -> list[Block]:
    """Return what the shown head changes against the newest trusted points, worst first."""
    head = await _read_head(tx, subject.repo, subject.head_sha, subject.settings)
    if head is None:
        return []
    judged = await _judge(tx, head)
    page = f"/{subject.repo}/benchmarks"
    lines = [_line(one, head) for one in judged[:LINES]]
    if len(judged) > LINES:
        lines.append(BlockLine(text=f"and {len(judged) - LINES:,} more", url=page))
    if not judged:
        text = f"{len(head.points):,} measured, none changed by more than noise"
        lines.append(BlockLine(text=text, url=page, tone="good"))
    return [Block(heading="Benchmarks", lines=tuple(lines))]


async def tell_comment(tx: Transaction, subject: HeadSubject) -> list[BlockLine]:
    """Return the same for the comment, where the settings ask for it and something changed."""
    if subject.settings.of(BenchmarkSettings).ci_benchmark_comment != "changes":
        return []
    head = await _read_head(tx, subject.repo, subject.head_sha, subject.settings)
    judged = await _judge(tx, head) if head else []
    lines = [_line(one, head, subject.url) for one in judged[:TOLD] if head]
    if len(judged) > TOLD:
        text = f"and {len(judged) - TOLD:,} more benchmarks changed"
        lines.append(BlockLine(text=text, url=f"{subject.url}/{subject.repo}/benchmarks"))
    return lines


async def _read_head(tx: Transaction, repo: str, sha: str | None, settings: Settings) -> Head | None:
    """Return what runs measured of a commit; None where they measured nothing."""
    found = await source_rows.sources_testing(tx, sha, KIND, limit=FILES) if sha else []
    files = {(one["repository_id"], one["object_id"]): one for one in found if await _is_shown(tx, one, repo)}
    points = await series_rows.points_of_sources(tx, files)
    if not points:
        return None
    listed = await allowlists.in_force(tx)
    labels = {entry.key: entry.label for entry in listed.entries} if listed else {}
    return Head(repo, settings, files, points, labels)


async def _is_shown(tx: Transaction, source: SourceRow, repo: str) -> bool:
    """Whether a file is of this upstream's commit, and its repository is public."""
    same = (source["upstream_repo"] or "").casefold() == repo.casefold()
    return same and (await runs.repository_facts(tx, source["repository_id"])).private is False


async def _judge(tx: Transaction, head: Head) -> list[Judged]:
    """Return the series that changed by more than noise, the worst first."""
    chosen = head.settings.of(BenchmarkSettings).ci_benchmark_directions
    series = await series_rows.series_by_id(tx, {one["series_id"] for one in head.points})
    by_repository: defaultdict[int, list[Point]] = defaultdict(list)
    for point in head.points:
        by_repository[point["repository_id"]].append(point)
    found = []
    for repository_id, mine in sorted(by_repository.items()):
        ids = {one["series_id"] for one in mine}
        began = min(one["at"] for one in mine)
        usual = await series_rows.newest_points(tx, repository_id, ids, limit=SEEN, before=began)
        for point in mine:
            one = series[point["series_id"]]
            change = judge_series.compare_point(one, point, usual.get(one["id"], []))
            if change and change.counts:
                worse = directions.is_worse(one["metric"], change.by, chosen)
                found.append(Judged(head.files[repository_id, point["object_id"]], one, change, worse))
    return sorted(found, key=lambda one: (one.worse is not True, -abs(one.change.by), one.series["id"]))


def _line(one: Judged, head: Head, address: str = "") -> BlockLine:
    """Return a change in words; `address` is that of this bot, where the line is shown elsewhere."""
    series, repo = one.series, one.source["repo"]
    whose = "" if repo.casefold() == head.repo.casefold() else head.labels.get(repo.casefold(), repo)
    chosen = head.settings.of(BenchmarkSettings).ci_benchmark_directions
    device = f"on {series['device']}" if series["device"] else ""
    where = " ".join(part for part in (series["model"], device) if part) or series["benchmark"]
    words = f"{series['metric']} {directions.words(series['metric'], one.change.by, chosen)}"
    text = " · ".join(part for part in (whose, where, words) if part)
    return BlockLine(
        text=shorten(" ".join(clean(text).split()), NAME_MOST),
        url=f"{address}/{repo}/benchmarks/{series['digest'].hex()[:SHOWN]}",
        tone="bad" if one.worse else "good" if one.worse is False else "idle",
    )
