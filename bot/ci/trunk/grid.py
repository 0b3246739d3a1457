"""The grid: commits down, jobs across, with one cell for all runs of a job on a commit."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from bot.ci.trunk import cells, commit_cells, lines, name_patterns, other_runs, required_checks, same_names
from bot.ci.trunk.cells import Cell
from bot.ci.trunk.same_names import FOREIGN_EVENTS
from bot.ci.trunk.store import unstable_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.trunk.cells import Run
    from bot.ci.trunk.commit_cells import ByColumn
    from bot.ci.trunk.groups import Named
    from bot.ci.trunk.other_runs import OtherCell, Source
    from bot.ci.trunk.settings import TrunkSettings
    from bot.ci.trunk.store.rows import BackendJobRow, RunRow
    from bot.ci.trunk.tables import CellRow, ColumnRow, CommitRow
    from bot.ingest.rows import CheckRunRow

Verdict = Literal["green", "red", "running", "none"]
OTHER, RERUNS, BACKENDS, CHECKS, UNSTABLE = "other", "Reruns", "Backends", "Checks", "Unstable"
RERUN_FLAGS = frozenset(
    ("mem_leak_check", "rerun_disabled_tests")
)  # arguments of jobs that run tests once more


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """A job of upstream or of a backend, or a check of another App."""

    name: str  # workflow / job
    workflow: str
    group: str
    source: Source
    blocking: bool

    @property
    def backend(self) -> str | None:
        """What the backend whose job it is goes by, None where it is no backend's."""
        return self.name.split(" / ")[1] if self.source == "oot" else None


@dataclass(kw_only=True, eq=False)
class Line:
    """A commit with its cells, by the place of their column."""

    commit: CommitRow
    gone: bool
    cells: dict[int, Cell]
    verdict: Verdict = "none"
    signal_at: int | None = None  # when the last blocking job ended, once all have


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Lines, newest first, and the columns that any of them has a cell in."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    blocking_named: bool = False  # whether some are said to block; else all of upstream's do

    def greens_before(self) -> list[str | None]:
        """Return for each red line the newest green commit before it, None for the others and where none is here."""
        found: list[str | None] = []
        green: str | None = None
        for line in reversed(self.lines):
            found.append(green if line.verdict == "red" else None)
            if line.verdict == "green" and not line.gone:
                green = line.commit["sha"]
        return found[::-1]

    def on_branch(self) -> Grid:
        """Return the grid without lines that left the branch: what they show is no evidence of how it stands."""
        kept = tuple(line for line in self.lines if not line.gone)
        return self if len(kept) == len(self.lines) else replace(self, lines=kept)

    def column(self, place: int) -> list[Cell | None]:
        """Return one column's cells, newest first."""
        return [line.cells.get(place) for line in self.lines]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the database holds of some commits."""

    commits: Sequence[CommitRow]
    cells: Mapping[str, ByColumn] = field(default_factory=dict)  # of upstream's jobs, by commit and column
    jobs: Sequence[CellRow] = ()  # their runs, where these are asked for
    columns: Mapping[int, ColumnRow] = field(default_factory=dict)
    runs: Sequence[RunRow] = ()
    backend_jobs: Sequence[BackendJobRow] = ()
    devices: Mapping[str, str] = field(default_factory=dict)  # of backends, by case folded name
    checks: Sequence[CheckRunRow] = ()
    unstable: frozenset[str] = frozenset()  # names in issues
    required: frozenset[str] = frozenset()  # names of checks that GitHub requires
    groups: Named = ()  # of the repository's columns


@dataclass(kw_only=True, eq=False)
class _Named:
    """What is known of a column before it has a place."""

    workflow: str
    source: Source
    unstable: bool
    rerun: bool
    required: bool  # by GitHub


class _Gathered:
    """What is known of each name, and the cells that are not of upstream's jobs, by commit and name."""

    def __init__(self) -> None:
        self.others: list[tuple[str, str, Cell]] = []
        self.named: dict[str, _Named] = {}

    def name(
        self,
        name: str,
        workflow: str,
        source: Source,
        *,
        unstable: bool = False,
        rerun: bool = False,
        required: bool = False,
    ) -> None:
        """Note a name. Aliases may join two workflows: the first by name is the column's."""
        new = _Named(workflow=workflow, source=source, unstable=unstable, rerun=rerun, required=required)
        known = self.named.setdefault(name, new)
        known.unstable |= unstable
        known.rerun |= rerun
        known.required |= required
        if workflow < known.workflow:
            known.workflow, known.source = workflow, source


def key_of_column(name: str) -> str:
    """Return a column's key: the same on every page, whatever other columns there are."""
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:10]


def build_grid(facts: Facts, settings: TrunkSettings, *, shards: bool = False) -> Grid:
    """Return the grid of some commits; with `shards`, for which `jobs` are needed, every shard has a column."""
    jobs = facts.cells
    if shards:
        jobs = commit_cells.make_cells(facts.jobs, same_names.describe_runs(facts.runs), shards=True)
    shown = {key: name_patterns.column_name(column, settings) for key, column in facts.columns.items()}
    gathered = _gather(facts, settings, jobs, shown, shards=shards)
    named = _names_blocking(gathered, settings)
    columns = _columns(gathered, facts.groups, settings, named=named)
    places = {column.name: place for place, column in enumerate(columns)}
    place_of = {key: places[name] for key, name in shown.items() if name in places}
    by_commit: defaultdict[str, dict[int, Cell]] = defaultdict(dict)
    for sha, found in jobs.items():  # there are many thousands
        by_commit[sha] = {place_of[key]: cell for key, cell in found.items() if key in place_of}
    for sha, name, cell in gathered.others:
        _add(by_commit[sha], places[name], cell)
    _add_awaited(by_commit, columns, facts)
    gone = lines.gone_commits(facts.commits)
    blocking = frozenset(place for place, column in enumerate(columns) if column.blocking)
    made = tuple(
        _line(commit, commit["sha"] in gone, by_commit.get(commit["sha"], {}), blocking)
        for commit in facts.commits
    )
    return Grid(columns=columns, lines=made, blocking_named=named)


def runs_of_column(
    facts: Facts, settings: TrunkSettings, name: str, *, shards: bool = False
) -> tuple[Run, ...]:
    """Return every run of one column, as a cell's details show them; `facts` are of one commit, with its jobs."""
    shown = {key: name_patterns.column_name(column, settings) for key, column in facts.columns.items()}
    jobs = same_names.place_jobs(facts.jobs, same_names.describe_runs(facts.runs), shards=shards)
    known = {(run["id"], run["run_attempt"]): run for run in facts.runs}
    # every attempt has the event of its run, but not its actor: that of an attempt without a record is unknown
    other: dict[int, RunRow] = {run["id"]: {**run, "triggering_actor_login": None} for run in facts.runs}
    runs = [
        commit_cells.make_run(
            one, known.get((one.row["run_id"], one.row["attempt"])) or other.get(one.row["run_id"])
        )
        for one in jobs
        if shown.get(one.column) == name
    ]
    runs += [run for cell, run in other_runs.find_runs(facts, settings, shards=shards) if cell.name == name]
    return cells.details(runs).runs if runs else ()


def _add(found: dict[int, Cell], place: int, cell: Cell) -> None:
    """Add a cell; of two at one place, which only an odd name of a job brings about, the worse."""
    both = [cell, found[place]] if place in found else [cell]
    found[place] = min(both, key=lambda one: cells.WORST.index(one.character))


def _gather(
    facts: Facts,
    settings: TrunkSettings,
    jobs: Mapping[str, ByColumn],
    shown: Mapping[int, str | None],
    *,
    shards: bool,
) -> _Gathered:
    gathered = _Gathered()
    seen: set[int] = set()
    for found in jobs.values():
        seen.update(found)
    required, unstable = (
        required_checks.names_of_jobs(facts.required),
        unstable_jobs.plain_names(facts.unstable),
    )
    for key in seen:
        if name := shown.get(key):
            _name_job(gathered, name, facts.columns[key], unstable, required)
    others: defaultdict[OtherCell, list[Run]] = defaultdict(list)
    for other, run in other_runs.find_runs(facts, settings, shards=shards):
        others[other].append(run)
    for other, runs in others.items():
        # a run that never started has none of the jobs that may be required
        is_required = other.source == "actions" or (other.source == "check" and other.check in required)
        gathered.name(other.name, other.workflow, other.source, required=bool(required) and is_required)
        gathered.others.append((other.sha, other.name, cells.cell(runs)))
    return gathered


def _name_job(
    gathered: _Gathered, name: str, column: ColumnRow, unstable: frozenset[str], required: frozenset[str]
) -> None:
    flags = frozenset(column["flags"].split(","))
    gathered.name(
        name,
        column["workflow"],
        "actions",
        rerun=bool(flags & RERUN_FLAGS),
        unstable="unstable" in flags or unstable_jobs.covers(unstable, column["workflow"], column["job"]),
        required=column["job"] in required,
    )


def _names_blocking(gathered: _Gathered, settings: TrunkSettings) -> bool:
    """Whether settings or GitHub name jobs that block; where GitHub requires none of those here, all of them do."""
    return bool(settings.ci_blocking) or any(
        one.required and not name.endswith(other_runs.DID_NOT_START) for name, one in gathered.named.items()
    )


def _columns(
    gathered: _Gathered, groups: Named, settings: TrunkSettings, *, named: bool
) -> tuple[Column, ...]:
    order = {name: place for place, (name, _) in enumerate(groups)}
    order |= {
        name: len(order) + place for place, name in enumerate((OTHER, RERUNS, BACKENDS, CHECKS, UNSTABLE))
    }
    made = [_column(name, known, groups, settings, named=named) for name, known in gathered.named.items()]
    return tuple(sorted(made, key=lambda one: (order[one.group], one.workflow, one.name)))


def _column(name: str, known: _Named, groups: Named, settings: TrunkSettings, *, named: bool) -> Column:
    group = {"oot": BACKENDS, "check": CHECKS}.get(known.source)
    if group is None and (known.unstable or known.rerun):
        group = UNSTABLE if known.unstable else RERUNS
    elif group is None:
        group = name_patterns.first_match(groups, name) or OTHER
    if group == UNSTABLE:
        blocking = False
    elif named:
        blocking = known.required or any(
            name_patterns.compile_pattern(each).search(name) for each in settings.ci_blocking
        )
    else:
        blocking = known.source == "actions"
    return Column(name=name, workflow=known.workflow, group=group, source=known.source, blocking=blocking)


def _add_awaited(by_commit: dict[str, dict[int, Cell]], columns: Sequence[Column], facts: Facts) -> None:
    """Add a mark for jobs that a workflow had on other commits, while its run on this one goes on."""
    running: defaultdict[str, set[str]] = defaultdict(set)
    for run in facts.runs:
        if run["status"] != "completed" and run["event"] not in FOREIGN_EVENTS and run["name"]:
            running[run["name"]].add(run["head_sha"] or "")
    for place, column in enumerate(columns):
        for sha in running.get(column.workflow, ()) if column.source == "actions" else ():
            if not column.name.endswith(other_runs.DID_NOT_START):
                by_commit[sha].setdefault(place, Cell(character=cells.NONE_YET))


def _line(commit: CommitRow, gone: bool, found: dict[int, Cell], blocking: frozenset[int]) -> Line:
    deciding = [cell for place, cell in found.items() if place in blocking]
    characters = {cell.character for cell in deciding}
    verdict: Verdict = "none"
    if characters & (cells.FAILED | {cells.CANCELLED}):
        verdict = "red"
    elif characters & cells.UNFINISHED:
        verdict = "running"
    elif characters & cells.PASSED and characters <= cells.GREEN:
        verdict = "green"
    ended = [cell.last_ended_at for cell in deciding if cell.last_ended_at is not None]
    finished = bool(deciding) and not characters & cells.UNFINISHED
    return Line(
        commit=commit,
        gone=gone,
        cells=found,
        verdict=verdict,
        signal_at=max(ended, default=None) if finished else None,
    )
