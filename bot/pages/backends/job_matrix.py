"""The grid of a backend's jobs: commits or nightly builds down, jobs across, with the result in each cell."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.oot.results import visibility
from bot.oot.results.tables import (
    JobDurations,
    JobFlags,
    JobKey,
    JobName,
    JobOrigin,
    JobOutcome,
    JobPage,
    JobReportedSpan,
    JobRun,
    JobSpan,
    JobSubject,
    JobTimes,
)
from bot.oot.statistics.stats import outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# upstream, pull request, commit, and the run of a nightly build
CommitPlace = tuple[str, int | None, str, str]
ColumnName = tuple[str, str]  # workflow, job

BUILDS = frozenset({"nightly", "periodic"})  # events whose runs are builds of their own, whatever the commit
FOLD = 12  # columns shown; the others are folded into one
TONES = {
    "failure": "bad", "timed_out": "bad", "running": "wait", "success": "good", "cancelled": "idle", "skipped": "idle",
    "neutral": "idle",
}  # fmt: skip
_WORST_FIRST = ("bad", "wait", "good", "idle")
_SHARD = re.compile(r"(?<![\w.])(\d{1,3})(\s*(?:,|/|of)\s*)(\d{1,3})(?![\w.])")


class GridJob(
    JobKey,
    JobOutcome,
    JobSubject,
    JobPage,
    JobName,
    JobRun,
    JobDurations,
    JobSpan,
    JobReportedSpan,
    JobOrigin,
    JobFlags,
    JobTimes,
):
    """What the grid needs of a job."""

    run_received_at: int  # first report of its run: tells which of several runs is the newest


@dataclass(frozen=True, kw_only=True, eq=False)
class MatrixColumn:
    """One job of one workflow; the shards of a job share a column."""

    workflow: str
    name: str  # of shards: with their count in place of their numbers
    shard_count: int = 0  # different ones seen; 0: not a sharded job

    @property
    def anchor(self) -> str:
        """The anchor of its head on the page."""
        return anchor_of_job(self.workflow, self.name)


@dataclass(frozen=True, kw_only=True)
class MatrixCell:
    """The jobs of one column on one commit: the newest attempt of each."""

    key: str
    tone: str
    label: str  # for people, as in "2 of 5 failed"
    rows: tuple[GridJob, ...]  # newest attempt of each shard
    earlier: tuple[GridJob, ...] = ()

    @property
    def seconds(self) -> float | None:
        """The longest execution time among them."""
        known = [time for row in self.rows if (time := visibility.job_seconds(row)) is not None]
        return max(known, default=None)


@dataclass(frozen=True, kw_only=True)
class MatrixRow:
    """One commit, or one nightly build."""

    place: CommitPlace
    at: int
    url: str | None = None  # of a nightly build's run
    jobs: int
    cells: tuple[MatrixCell | None, ...]  # in the order of the columns
    folded: tuple[MatrixCell, ...] = ()  # of the folded columns


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The grid; commits are ordered newest first."""

    columns: tuple[MatrixColumn, ...]
    folded: tuple[MatrixColumn, ...]
    lines: tuple[MatrixRow, ...]
    more: bool = False  # there are older commits, not shown

    def find(self, key: str) -> tuple[MatrixRow, MatrixCell] | None:
        """Return the cell of this key and its line."""
        for line in self.lines:
            for cell in (*line.cells, *line.folded):
                if cell is not None and cell.key == key:
                    return line, cell
        return None


@dataclass(kw_only=True)
class _Commit:
    """The jobs of one commit, gathered row by row."""

    at: int = 0
    url: str | None = None
    jobs: dict[ColumnName, list[GridJob]] = field(default_factory=lambda: defaultdict(list))


def build_matrix(rows: Iterable[GridJob], *, most: int, fold: int | None = FOLD) -> Matrix:
    """Build the grid of the newest `most` commits; `rows` are newest first, `fold` None shows every column."""
    commits: dict[CommitPlace, _Commit] = {}
    more = False
    for row in rows:
        place = _place(row)
        if place not in commits and len(commits) >= most:
            more = True
            continue
        commit = commits.setdefault(
            place, _Commit(at=_at(row), url=row["workflow_run_url"] if place[3] else None)
        )
        commit.jobs[row["workflow_name"], row["job_name"]].append(row)
    groups = _groups({job for commit in commits.values() for job in commit.jobs})
    columns = sorted(set(groups.values()), key=lambda column: (column.workflow, column.name))
    keys = {column: _digest(column.workflow, column.name) for column in columns}
    cells = {place: _cells(place, commit, groups, keys) for place, commit in commits.items()}
    visible = columns if fold is None or len(columns) <= fold else _worst(columns, list(cells.values()), fold)
    folded = tuple(column for column in columns if column not in visible)
    return Matrix(
        columns=tuple(visible),
        folded=folded,
        lines=tuple(
            MatrixRow(
                place=place,
                at=commit.at,
                url=commit.url,
                jobs=sum(len(cell.rows) for cell in cells[place].values()),
                cells=tuple(cells[place].get(column) for column in visible),
                folded=tuple(cells[place][column] for column in folded if column in cells[place]),
            )
            for place, commit in commits.items()
        ),
        more=more,
    )


def worst(cells: Sequence[MatrixCell]) -> str:
    """Return the worst tone of some cells."""
    tones = {cell.tone for cell in cells}
    return next((tone for tone in _WORST_FIRST if tone in tones), "idle")


def anchor_of_job(workflow: str, name: str) -> str:
    """Return the page anchor of a job's column; shards have the same."""
    return f"job-{_digest(workflow, name_shards(name))}"


def name_shards(name: str) -> str:
    """Return the common name of a job's shards, with their count in place of their numbers."""

    def hide(match: re.Match[str]) -> str:
        number, between, count = match.groups()
        return f"1–{count}" if 1 <= int(number) <= int(count) else f"{number}{between}{count}"  # noqa: RUF001

    return _SHARD.sub(hide, name, count=1)


def _place(row: GridJob) -> CommitPlace:
    """Return the row a job is on: each nightly build has its own; of a commit the newest run counts."""
    build = row["run_id"] if row["event_type"] in BUILDS else ""
    return row["upstream_repo"], row["pr_number"], row["head_sha"] or "", build


def _at(row: GridJob) -> int:
    """Return the time of a row: when a nightly build ended, or when other jobs were reported."""
    ended = visibility.job_times(row).completed_at if row["event_type"] in BUILDS else None
    return ended or row["received_at"]


def _groups(jobs: set[ColumnName]) -> dict[ColumnName, MatrixColumn]:
    """Return the column of each job: shards, recognized by numbers such as `2, 5` or `2/5`, share one."""
    stems: dict[ColumnName, list[ColumnName]] = defaultdict(list)
    for workflow, name in jobs:
        stems[workflow, name_shards(name)].append((workflow, name))
    groups: dict[ColumnName, MatrixColumn] = {}
    for (workflow, stem), members in stems.items():
        shards = len(members) if len(members) > 1 else 0
        column = MatrixColumn(workflow=workflow, name=stem if shards else members[0][1], shard_count=shards)
        groups |= dict.fromkeys(members, column)
    return groups


def _cells(
    place: CommitPlace, commit: _Commit, groups: dict[ColumnName, MatrixColumn], keys: dict[MatrixColumn, str]
) -> dict[MatrixColumn, MatrixCell]:
    parts: dict[MatrixColumn, list[list[GridJob]]] = defaultdict(list)
    for job, rows in commit.jobs.items():
        parts[groups[job]].append(rows)
    start = _digest(*place)
    return {column: _cell(start + keys[column], members) for column, members in parts.items()}


def _cell(key: str, members: list[list[GridJob]]) -> MatrixCell:
    """Build a cell from the newest attempt of each job's newest run."""
    newest: list[GridJob] = []
    earlier: list[GridJob] = []
    for rows in members:
        first, *others = sorted(rows, key=_newest_first) if len(rows) > 1 else rows
        newest.append(first)
        earlier += others
    newest.sort(key=lambda row: row["job_name"])
    outcomes = [outcome_of(row) for row in newest]
    tones = [TONES[outcome] for outcome in outcomes]
    tone = next(tone for tone in _WORST_FIRST if tone in tones)
    label = outcomes[tones.index(tone)].replace("_", " ")
    if len(newest) > 1:
        label = f"{tones.count(tone)} of {len(newest)} {label}"
    return MatrixCell(
        key=key,
        tone=tone,
        label={"success": "passed", "failure": "failed"}.get(label, label),
        rows=tuple(newest),
        earlier=tuple(sorted(earlier, key=_newest_first)),
    )


def _newest_first(row: GridJob) -> tuple[int, int, str]:
    return -row["run_received_at"], -row["run_attempt"], row["job_key"]


def _digest(*words: object) -> str:
    """Return a short digest of a commit or a column: both together are the key of a cell."""
    digest = hashlib.sha256("\n".join(map(str, words)).encode("utf-8", "replace")).digest()
    return base64.urlsafe_b64encode(digest)[:6].decode()


def _worst(
    columns: list[MatrixColumn], lines: list[dict[MatrixColumn, MatrixCell]], most: int
) -> list[MatrixColumn]:
    """Return the columns with the most red cells, in their original order."""
    reds = {
        column: sum(column in cells and cells[column].tone == "bad" for cells in lines) for column in columns
    }
    chosen = sorted(columns, key=lambda column: -reds[column])[:most]
    return [column for column in columns if column in chosen]
