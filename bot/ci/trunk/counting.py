"""Sums of a day of a branch: what each column showed, and how each commit fared. Pure: made from a grid."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.trunk import runner_labels
from bot.oot.statistics import histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.ci.trunk.cells import Cell
    from bot.ci.trunk.grid import Grid, Line
    from bot.ci.trunk.settings import NamedPatterns

NOTHING = " "  # a commit without a cell
UNREAD = "unread"  # in place of the kind of a failure whose log was not read


class RunTimes(NamedTuple):
    """One run of one job, with its times in epoch milliseconds."""

    head_sha: str
    attempt: int
    cancelled: bool
    failed: bool
    failure_kind: str | None
    queued_at: int | None
    started_at: int | None
    completed_at: int | None
    runner_label: str | None  # as stored, see `runner_labels`

    @property
    def seconds(self) -> int:
        """How long it ran; 0 while it does, and where the clocks are wrong."""
        if self.started_at is None or self.completed_at is None:
            return 0
        return max(0, self.completed_at - self.started_at) // 1000

    @property
    def queue_seconds(self) -> float | None:
        """How long it waited for a runner; None before it got one."""
        if self.started_at is None or self.queued_at is None:
            return None
        return max(0, self.started_at - self.queued_at) / 1000


@dataclass(frozen=True, kw_only=True)
class ColumnDay:
    """What a column showed on the commits of a day, oldest first; a failure of the infrastructure in lower case."""

    name: str
    workflow: str
    cells: str


@dataclass(frozen=True, kw_only=True)
class LineSums:
    """How a commit fared."""

    sha: str
    verdict: str
    red_seconds: int | None
    signal_seconds: int | None
    jobs: int
    reruns: int
    flaky: int
    cancelled_seconds: int
    seconds: Mapping[str, int]  # of all runs, by runner label
    failures: Mapping[str, int]  # of all runs, by their kind


@dataclass(frozen=True, kw_only=True)
class RunnerDay:
    """The jobs of one runner label created on a day."""

    label: str
    jobs: int
    queue: int  # histograms
    duration: int


def column_days(grid: Grid) -> list[ColumnDay]:
    """Return each column's characters; the grid has the commits of one day."""
    found = []
    for place, column in enumerate(grid.columns):
        cells = "".join(map(_character, reversed(grid.column(place))))
        found.append(ColumnDay(name=column.name, workflow=column.workflow, cells=cells))
    return found


def line_sums(grid: Grid, times: Iterable[RunTimes], runners: NamedPatterns) -> list[LineSums]:
    """Return how each commit fared, oldest first; `runners` name labels, see `runner_labels`."""
    by_commit: defaultdict[str, list[RunTimes]] = defaultdict(list)
    for one in times:
        by_commit[one.head_sha].append(one)
    return [
        _line(grid, line, by_commit.get(line.commit["sha"], []), runners) for line in reversed(grid.lines)
    ]


def runner_days(times: Iterable[RunTimes], runners: NamedPatterns) -> list[RunnerDay]:
    """Return the jobs of a day by runner label."""
    by_label: defaultdict[str, list[RunTimes]] = defaultdict(list)
    for one in times:
        by_label[runner_labels.counted(one.runner_label, runners)].append(one)
    return [
        RunnerDay(
            label=label,
            jobs=len(runs),
            queue=histogram.pack(
                wait for run in runs if run.attempt == 1 and (wait := run.queue_seconds) is not None
            ),
            duration=histogram.pack(run.seconds for run in runs if run.completed_at is not None),
        )
        for label, runs in sorted(by_label.items())
    ]


def _character(cell: Cell | None) -> str:
    if cell is None:
        return NOTHING
    return cell.character.lower() if cell.infra else cell.character


def _line(grid: Grid, line: Line, runs: Sequence[RunTimes], runners: NamedPatterns) -> LineSums:
    began = min((run.queued_at for run in runs if run.queued_at is not None), default=None)
    failed = [
        cell.first_ended_at
        for place, cell in line.cells.items()
        if cell.broken and grid.columns[place].blocking and cell.first_ended_at is not None
    ]
    seconds: defaultdict[str, int] = defaultdict(int)
    for run in runs:
        seconds[runner_labels.counted(run.runner_label, runners)] += run.seconds
    failures = Counter(run.failure_kind or UNREAD for run in runs if run.failed)
    return LineSums(
        sha=line.commit["sha"],
        verdict=line.verdict,
        red_seconds=_since(began, min(failed, default=None)),
        signal_seconds=_since(began, line.signal_at),
        jobs=len(runs),
        reruns=sum(run.attempt > 1 for run in runs),
        flaky=sum(cell.character == "F" for cell in line.cells.values()),
        cancelled_seconds=sum(run.seconds for run in runs if run.cancelled),
        seconds=dict(sorted(seconds.items())),
        failures=dict(sorted(failures.items())),
    )


def _since(began: int | None, ended: int | None) -> int | None:
    return None if began is None or ended is None else max(0, ended - began) // 1000
