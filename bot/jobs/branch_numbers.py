"""Numbers of a branch over days: how often it is red, how soon that is known, which jobs fail, what they cost."""

from __future__ import annotations

import math
from collections import defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

from bot.jobs import branch_history
from bot.jobs.cells import FAILED, INFRA, Cell
from bot.jobs.daily_sums import NOTHING, UNREAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bot.jobs.daily_sums import ColumnDay
    from bot.jobs.tables import LineRow

Costs = tuple[tuple[str, float], ...]
Z = 1.959964  # of a two-sided interval that holds in 95 % of cases
_CELLS = {character: Cell(character=character) for character in "OFXTACNSQ?~U"}
_CELLS |= {shown.lower(): Cell(character=shown, kind=INFRA) for shown in FAILED}  # see `counting`
UNNAMED = ("generic", "none")  # kinds that do not say why a job failed


class TrunkDay(Struct, frozen=True, kw_only=True):
    """One day of a branch, or all of them; seconds unless the name says otherwise

    `failures` counts runs that failed by the kind that their logs say: `none` where no rule matches, `unread` without a
    log. `unclassified_share` is that of kinds `none` and `generic` among those with a log.
    """

    lines: int
    red: int
    green: int
    red_share: float | None
    red_p50: float | None
    red_p75: float | None
    red_p90: float | None
    signal_p50: float | None
    signal_p75: float | None
    signal_p90: float | None
    jobs: int
    reruns: int
    flaky: int
    flaky_share: float | None  # of first attempts
    job_seconds: int
    cancelled_seconds: int
    cost: float | None
    failures: dict[str, int]
    unclassified_share: float | None


class RunnerHours(Struct, frozen=True, kw_only=True):
    """What ran on the runners of one label; `cost` is null where CI_RUNNER_COST is not set"""

    label: str
    job_seconds: int
    cost: float | None


class JobReliability(Struct, frozen=True, kw_only=True):
    """One job on a branch; `worst` is the lower end of the failure share's 95 % interval, by which rows are ordered"""

    name: str
    workflow: str
    runs: int
    passed: int
    infra: int
    broken: int
    flaky: int
    pass_rate: float | None
    worst: float
    job_seconds: int


def trunk_day(lines: Iterable[LineRow], costs: Costs) -> TrunkDay:
    """Return the numbers of some commits."""
    rows = list(lines)
    red = sum(row["verdict"] == "red" for row in rows)
    green = sum(row["verdict"] == "green" for row in rows)
    signals = sorted(row["signal_seconds"] for row in rows if row["signal_seconds"] is not None)
    jobs, reruns = sum(row["jobs"] for row in rows), sum(row["reruns"] for row in rows)
    flaky = sum(row["flaky"] for row in rows)
    reds = sorted(row["red_seconds"] for row in rows if row["red_seconds"] is not None)
    seconds, failures = _seconds(rows), _failures(rows)
    return TrunkDay(
        lines=len(rows),
        red=red,
        green=green,
        red_share=red / (red + green) if red + green else None,
        red_p50=quantile(reds, 0.5),
        red_p75=quantile(reds, 0.75),
        red_p90=quantile(reds, 0.9),
        signal_p50=quantile(signals, 0.5),
        signal_p75=quantile(signals, 0.75),
        signal_p90=quantile(signals, 0.9),
        jobs=jobs,
        reruns=reruns,
        flaky=flaky,
        flaky_share=min(1.0, flaky / (jobs - reruns)) if jobs > reruns else None,
        job_seconds=sum(seconds.values()),
        cancelled_seconds=sum(row["cancelled_seconds"] for row in rows),
        cost=cost_of(seconds.items(), costs),
        failures=failures,
        unclassified_share=_unclassified(failures),
    )


def numbers_by_day(lines: Iterable[LineRow], costs: Costs, *, first: int, last: int) -> list[TrunkDay]:
    """Return the numbers of each day, including days without a commit."""
    by_day: defaultdict[int, list[LineRow]] = defaultdict(list)
    for row in lines:
        by_day[row["day"]].append(row)
    return [trunk_day(by_day[each], costs) for each in range(first, last + 1)]


def hours_by_runner(lines: Iterable[LineRow], costs: Costs) -> list[RunnerHours]:
    """Return what ran on the runners of each label, the busiest first."""
    seconds = _seconds(lines)
    return [
        RunnerHours(label=label, job_seconds=seconds[label], cost=cost_of([(label, seconds[label])], costs))
        for label in sorted(seconds, key=lambda label: (-seconds[label], label))
    ]


def quantile(ordered: Sequence[int], share: float) -> float | None:
    """Return the value that a share of ascending values does not exceed."""
    return float(ordered[max(0, math.ceil(len(ordered) * share) - 1)]) if ordered else None


def cost_of(seconds: Iterable[tuple[str, int]], costs: Costs) -> float | None:
    """Return what runs on these labels cost; None where no cost is set, 0 for labels without one."""
    if not costs:
        return None
    total = 0.0
    for label, each in seconds:
        total += next((money for glob, money in costs if fnmatchcase(label, glob)), 0.0) * each / 3600
    return round(total, 2)


def job_reliability(
    rows: Iterable[ColumnDay], lines: Iterable[LineRow], *, rename: Callable[[str, str], str | None]
) -> list[JobReliability]:
    """Return every job's reliability, the least reliable first.

    `rename` returns the name that a column is shown under, None where it is left out.
    """
    sizes: defaultdict[int, int] = defaultdict(int)
    for line in lines:
        sizes[line["day"]] += 1
    shown: dict[str, dict[int, str]] = defaultdict(dict)
    workflows: dict[str, str] = {}
    seconds: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        name = rename(row["workflow"], row["name"])
        if name is None:
            continue
        shown[name][row["day"]] = _joined(shown[name].get(row["day"], ""), row["cells"])
        workflows[name] = min(workflows.get(name, row["workflow"]), row["workflow"])
        seconds[name] += row["seconds"]
        sizes[row["day"]] = max(sizes[row["day"]], len(row["cells"]))
    days = sorted(sizes)
    columns = {
        name: _summed_cells("".join(cells.get(each, "").ljust(sizes[each], NOTHING) for each in days))
        for name, cells in shown.items()
    }
    outage = branch_history.outages(
        (branch_history.workflow_of(name, workflows[name]), column) for name, column in columns.items()
    )
    jobs = [
        _reliability(name, workflows[name], branch_history.reliability(column, outage), seconds[name])
        for name, column in columns.items()
    ]
    return sorted((job for job in jobs if job.runs), key=lambda job: (-job.worst, -job.runs, job.name))


def wilson_lower(failures: int, runs: int) -> float:
    """Return the lower end of the 95 % interval of a share (Wilson): a few unlucky runs do not lead the list."""
    if not runs:
        return 0.0
    share, square = failures / runs, Z * Z
    middle = share + square / (2 * runs)
    spread = Z * math.sqrt((share * (1 - share) + square / (4 * runs)) / runs)
    return max(0.0, (middle - spread) / (1 + square / runs))


def _seconds(lines: Iterable[LineRow]) -> dict[str, int]:
    """Return how long runs took, by runner label."""
    by_name: defaultdict[str, int] = defaultdict(int)
    for line in lines:
        for label, seconds in line["seconds"].items():
            by_name[label] += seconds
    return by_name


def _failures(lines: Iterable[LineRow]) -> dict[str, int]:
    """Return the failed runs by kind, the most frequent first."""
    failures: defaultdict[str, int] = defaultdict(int)
    for line in lines:
        for kind, runs in (line["failures"] or {}).items():
            failures[kind] += runs
    return dict(sorted(failures.items(), key=lambda each: (-each[1], each[0])))


def _unclassified(failures: Mapping[str, int]) -> float | None:
    """Return the share of the runs with a log whose failure no rule explains."""
    read = sum(runs for kind, runs in failures.items() if kind != UNREAD)
    return sum(failures.get(kind, 0) for kind in UNNAMED) / read if read else None


def _joined(text: str, other: str) -> str:
    """Return the cells of a job that had two names on one day; where both have a cell, the second one's."""
    if not text:
        return other
    return "".join(
        b if b != NOTHING else a for a, b in zip(text.ljust(len(other)), other.ljust(len(text)), strict=True)
    )


def _summed_cells(characters: str) -> list[Cell | None]:
    return [_CELLS.get(character) for character in reversed(characters)]


def _reliability(
    name: str, workflow: str, measured: branch_history.Reliability, seconds: int
) -> JobReliability:
    return JobReliability(
        name=name,
        workflow=workflow,
        runs=measured.runs,
        passed=measured.passed,
        infra=measured.infra,
        broken=measured.broken,
        flaky=measured.flaky,
        pass_rate=measured.passed / measured.runs if measured.runs else None,
        worst=round(wilson_lower(measured.failures, measured.runs), 4),
        job_seconds=seconds,
    )
