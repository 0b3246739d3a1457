"""Sums of a day of a branch: what each column showed, and how each commit fared. Pure: made from a grid."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from bot.ci.trunk import runner_labels
from bot.ci.trunk.cells import CONCLUSIONS
from bot.ci.trunk.tables import (
    ColumnCells,
    CommitKey,
    FailureKind,
    JobAttempt,
    JobHold,
    JobRunner,
    JobState,
    JobTimes,
    LineSums,
    RunnerCounts,
)
from bot.oot.statistics import histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.ci.trunk.cells import Cell
    from bot.ci.trunk.grid import Grid, Line
    from bot.ci.trunk.settings import NamedPatterns

NOTHING = " "  # a commit without a cell
CANCELLED = CONCLUSIONS.index("cancelled")
NEVER_RAN = (CANCELLED, CONCLUSIONS.index("skipped"))  # where they took no time: GitHub gives them one
FAILED = frozenset(
    CONCLUSIONS.index(word) for word in ("failure", "timed_out", "startup_failure", "action_required")
)
UNREAD = "unread"  # in place of the kind of a failure whose log was not read


class RunTimes(CommitKey, JobAttempt, JobState, JobTimes, JobRunner, FailureKind, JobHold):
    """One run of one job."""


def run_seconds(run: RunTimes) -> int:
    """Return how long a run took; 0 while it goes on, and where the clocks are wrong."""
    if run["started_at"] is None or run["completed_at"] is None:
        return 0
    return max(0, run["completed_at"] - run["started_at"]) // 1000


def queue_seconds(run: RunTimes) -> float | None:
    """Return how long a run waited for a runner; None before it got one, and where it waited for an approval first."""
    if run["started_at"] is None or run["queued_at"] is None or run["held"]:
        return None
    if run["conclusion"] in NEVER_RAN and run["started_at"] == run["completed_at"]:
        return None
    return max(0, run["started_at"] - run["queued_at"]) / 1000


def column_days(grid: Grid, seconds: Mapping[str, int]) -> list[ColumnCells]:
    """Return what each column showed, and how long its runs took; the grid has the commits of one day.

    Characters are those of the commits, oldest first; a failure of the infrastructure is in lower case.
    """
    return [
        {
            "name": column.name,
            "workflow": column.workflow,
            "cells": "".join(map(_character, reversed(grid.column(place)))),
            "seconds": seconds.get(column.name, 0),
        }
        for place, column in enumerate(grid.columns)
    ]


def line_sums(grid: Grid, times: Iterable[RunTimes], runners: NamedPatterns) -> list[LineSums]:
    """Return how each commit fared, oldest first; `runners` name labels, see `runner_labels`."""
    by_commit: defaultdict[str, list[RunTimes]] = defaultdict(list)
    for one in times:
        by_commit[one["head_sha"]].append(one)
    return [
        _line(grid, line, by_commit.get(line.commit["sha"], []), runners) for line in reversed(grid.lines)
    ]


def runner_days(times: Iterable[RunTimes], runners: NamedPatterns) -> dict[str, RunnerCounts]:
    """Return the jobs of a day by runner label."""
    by_label: defaultdict[str, list[RunTimes]] = defaultdict(list)
    for one in times:
        by_label[runner_labels.counted_label(one["runner_label"], runners)].append(one)
    return {label: _runner_counts(runs) for label, runs in sorted(by_label.items())}


def _runner_counts(runs: Sequence[RunTimes]) -> RunnerCounts:
    first = [run for run in runs if run["attempt"] == 1]
    waits = [wait for run in first if (wait := queue_seconds(run)) is not None]
    took = [run_seconds(run) for run in runs if run["completed_at"] is not None]
    return {
        "jobs": len(runs),
        "queue": histogram.to_bytes(histogram.pack(waits)),
        "duration": histogram.to_bytes(histogram.pack(took)),
    }


def _character(cell: Cell | None) -> str:
    if cell is None:
        return NOTHING
    return cell.character.lower() if cell.infra else cell.character


def _line(grid: Grid, line: Line, runs: Sequence[RunTimes], runners: NamedPatterns) -> LineSums:
    began = min((run["queued_at"] for run in runs if run["queued_at"] is not None), default=None)
    failed = [
        cell.first_ended_at
        for place, cell in line.cells.items()
        if cell.broken and grid.columns[place].blocking and cell.first_ended_at is not None
    ]
    seconds: defaultdict[str, int] = defaultdict(int)
    for run in runs:
        seconds[runner_labels.counted_label(run["runner_label"], runners)] += run_seconds(run)
    failures = Counter(run["failure_kind"] or UNREAD for run in runs if run["conclusion"] in FAILED)
    return {
        "sha": line.commit["sha"],
        "verdict": line.verdict,
        "red_seconds": _since(began, min(failed, default=None)),
        "signal_seconds": _since(began, line.signal_at),
        "jobs": len(runs),
        "reruns": sum(run["attempt"] > 1 for run in runs),
        "flaky": sum(cell.character == "F" for cell in line.cells.values()),
        "cancelled_seconds": sum(run_seconds(run) for run in runs if run["conclusion"] == CANCELLED),
        "seconds": dict(sorted(seconds.items())),
        "failures": dict(sorted(failures.items())),
    }


def _since(began: int | None, ended: int | None) -> int | None:
    return None if began is None or ended is None else max(0, ended - began) // 1000
