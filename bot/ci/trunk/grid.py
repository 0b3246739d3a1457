"""The grid: commits down, jobs across, with one cell for all runs of a job on a commit."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import msgspec

from bot.ci.collect import job_names
from bot.ci.trunk import cells, lines, name_patterns
from bot.ci.trunk.cells import CONCLUSIONS, STATES, Cell, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bot.ci.trunk.rows import BackendJobRow, CellRow, CheckRow, ColumnRow, CommitRow, RunRow
    from bot.ci.trunk.settings import TrunkSettings

Source = Literal["actions", "oot", "check"]
Verdict = Literal["green", "red", "running", "none"]
OTHER, BACKENDS, CHECKS, UNSTABLE = "other", "Backends", "Checks", "Unstable"
# events whose runs have nothing to do with the commit they carry
FOREIGN_EVENTS = frozenset({"workflow_run", "issue_comment", "repository_dispatch"})
DID_NOT_START = "(did not start)"
_SUCCESS = CONCLUSIONS.index("success")
_WORDS = [[cells.character(state, conclusion) for conclusion in ("", *CONCLUSIONS[1:])] for state in STATES]


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """A job of upstream or of a backend, or a check of another App."""

    name: str  # workflow / job
    workflow: str
    group: str
    source: Source
    blocking: bool


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

    def column(self, place: int) -> list[Cell | None]:
        """Return one column's cells, newest first."""
        return [line.cells.get(place) for line in self.lines]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the database holds of some commits."""

    commits: Sequence[CommitRow]
    cells: Sequence[CellRow] = ()
    columns: Mapping[int, ColumnRow] = field(default_factory=dict)
    runs: Sequence[RunRow] = ()
    backend_jobs: Sequence[BackendJobRow] = ()
    devices: Mapping[str, str] = field(default_factory=dict)  # of backends, by case folded name
    checks: Sequence[CheckRow] = ()


def _lists() -> defaultdict[str, list[CellRow | Run]]:
    return defaultdict(list)


class _Gathered:
    """Runs by place: those of one job are kept as read, since few are ever looked at twice."""

    def __init__(self) -> None:
        self.runs: defaultdict[str, defaultdict[str, list[CellRow | Run]]] = defaultdict(_lists)
        self.workflows: dict[str, str] = {}  # by column name
        self.flags: dict[str, str] = {}
        self.sources: dict[str, Source] = {}

    def add(self, sha: str, name: str, workflow: str, run: CellRow | Run, source: Source) -> None:
        self.runs[sha][name].append(run)
        if name not in self.workflows or workflow < self.workflows[name]:  # aliases may join two
            self.workflows[name] = workflow
            self.sources[name] = source


def build(facts: Facts, settings: TrunkSettings, *, shards: bool = False) -> Grid:
    """Return the grid of some commits; with `shards` every shard has a column of its own."""
    gathered = _gather(facts, settings, shards=shards)
    columns = _columns(gathered, settings)
    places = {column.name: place for place, column in enumerate(columns)}
    by_commit: dict[str, dict[int, Cell]] = defaultdict(dict)
    for sha, found in gathered.runs.items():
        by_commit[sha] = {places[name]: _cell(runs) for name, runs in found.items()}
    _add_awaited(by_commit, columns, facts)
    gone = lines.gone(facts.commits)
    made = tuple(
        _line(commit, commit["sha"] in gone, by_commit.get(commit["sha"], {}), columns)
        for commit in facts.commits
    )
    return Grid(columns=columns, lines=made)


def runs_of(facts: Facts, settings: TrunkSettings, sha: str, name: str, *, shards: bool = False) -> list[Run]:
    """Return every run of one column on one commit."""
    gathered = _gather(facts, settings, shards=shards)
    return [_run(each) for each in gathered.runs[sha][name]]


def ordered(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return runs as a cell's details show them."""
    return cells.details(runs).runs


def _gather(facts: Facts, settings: TrunkSettings, *, shards: bool) -> _Gathered:
    gathered = _Gathered()
    _add_jobs(gathered, facts, settings, shards=shards)
    _add_unstarted(gathered, facts, settings)
    _add_backends(gathered, facts, shards=shards)
    _add_checks(gathered, facts)
    return gathered


def _add_jobs(gathered: _Gathered, facts: Facts, settings: TrunkSettings, *, shards: bool) -> None:
    """Add upstream's own jobs. A pair of numbers is a shard only beside another one of as many."""
    foreign = {run["id"] for run in facts.runs if run["event"] in FOREIGN_EVENTS}
    sharded: defaultdict[tuple[str, int, int], set[int]] = defaultdict(set)
    for row in facts.cells:
        if row.shards:
            sharded[row.head_sha, row.column_id, row.shards].add(row.shard)
    shown = {key: column_name(column, settings) for key, column in facts.columns.items()}
    for row in facts.cells:
        if row.run_id in foreign:
            continue
        column, run = row.column_id, row
        if row.shards and (shards or len(sharded[row.head_sha, column, row.shards]) < 2):
            column, run = row.numbered_column_id or column, msgspec.structs.replace(row, shard=0, shards=0)
        if name := shown[column]:
            gathered.add(row.head_sha, name, facts.columns[column]["workflow"], run, "actions")
    for key, name in shown.items():
        if name and (flags := facts.columns[key]["flags"]):
            gathered.flags[name] = flags


def column_name(column: ColumnRow, settings: TrunkSettings) -> str | None:
    """Return the name of a stored column on the grid, None where it is left out."""
    workflow, job = column["workflow"], column["job"]
    return shown_name(workflow, f"{workflow} / {job}" if workflow else job, settings)


def shown_name(workflow: str, name: str, settings: TrunkSettings) -> str | None:
    """Return the name of a column on the grid, None where it is left out; `name` begins with the workflow's."""
    parts = (workflow.casefold(), name.removeprefix(f"{workflow} / ").casefold())
    if any(fnmatchcase(part, glob.casefold()) for glob in settings.ci_hide for part in parts):
        return None
    return name_patterns.replaced(settings.ci_aliases, name)


def _add_unstarted(gathered: _Gathered, facts: Facts, settings: TrunkSettings) -> None:
    """Add runs that ended before GitHub made their jobs: nothing else would show them."""
    for run in facts.runs:
        if run["conclusion"] == "startup_failure" and run["event"] not in FOREIGN_EVENTS:
            workflow = run["name"] or "workflow"
            name = name_patterns.replaced(settings.ci_aliases, f"{workflow} / {DID_NOT_START}")
            made = Run(id="", status="completed", conclusion="startup_failure", attempt=run["run_attempt"])
            gathered.add(run["head_sha"], name, workflow, made, "actions")


def _add_backends(gathered: _Gathered, facts: Facts, *, shards: bool) -> None:
    by_commit: defaultdict[tuple[str, str], list[BackendJobRow]] = defaultdict(list)
    for row in facts.backend_jobs:
        by_commit[row["head_sha"], row["downstream_repo"]].append(row)
    for (_, backend), rows in by_commit.items():
        names = [job_names.parse(row["workflow_name"], row["job_name"]) for row in rows]
        label = facts.devices.get(backend.casefold(), backend)
        for row, name in zip(rows, names if shards else job_names.resolve(names), strict=True):
            shown = f"backends / {label} / {_joined(name, shards=shards)}"
            gathered.add(row["head_sha"], shown, "backends", _reported(row, name), "oot")


def _joined(name: job_names.JobName, *, shards: bool) -> str:
    return f"{name.workflow} / {name.numbered}" if shards else name.shard_free


def _reported(row: BackendJobRow, name: job_names.JobName) -> Run:
    return Run(
        id=row["run_id"],
        status=row["status"],
        conclusion=row["conclusion"] or "",
        attempt=row["run_attempt"],
        event=row["event_type"],
        shard=name.shard or 0,
        shards=name.shards or 0,
        completed_at=row["completed_at"],
        url=row["workflow_run_url"],
    )


def _add_checks(gathered: _Gathered, facts: Facts) -> None:
    for row in facts.checks:
        app = row["app_slug"] or "app"
        run = Run(
            id=str(row["id"]),
            status=row["status"] or "",
            conclusion=row["conclusion"] or "",
            completed_at=row["completed_at"],
        )
        gathered.add(row["head_sha"], f"checks / {app} / {row['name'] or ''}", "checks", run, "check")


def _columns(gathered: _Gathered, settings: TrunkSettings) -> tuple[Column, ...]:
    order = {name: place for place, (name, _) in enumerate(settings.ci_groups)}
    order |= {name: len(order) + place for place, name in enumerate((OTHER, BACKENDS, CHECKS, UNSTABLE))}
    made = [_column(name, gathered, settings) for name in gathered.workflows]
    return tuple(sorted(made, key=lambda one: (order[one.group], one.workflow, one.name)))


def _column(name: str, gathered: _Gathered, settings: TrunkSettings) -> Column:
    source, flags = gathered.sources[name], gathered.flags.get(name, "")
    group = {"oot": BACKENDS, "check": CHECKS}.get(source)
    if group is None:
        unstable = "unstable" in flags.split(",")
        group = UNSTABLE if unstable else name_patterns.first(settings.ci_groups, name) or OTHER
    if settings.ci_blocking:
        blocking = any(name_patterns.compiled(each).search(name) for each in settings.ci_blocking)
    else:
        blocking = source == "actions" and group != UNSTABLE
    return Column(name=name, workflow=gathered.workflows[name], group=group, source=source, blocking=blocking)


def _cell(runs: Sequence[CellRow | Run]) -> Cell:
    """Return a cell; of a single run, or of successes only, without a detour, since nearly all are."""
    newest = runs[0]
    for run in runs if len(runs) > 1 else ():
        if isinstance(run, Run) or run.conclusion != _SUCCESS or run.shard:
            return cells.cell(map(_run, runs))
        newest = run if run.job_id > newest.job_id else newest  # type: ignore[union-attr]
    if isinstance(newest, Run):
        return cells.cell([newest])
    return Cell(
        character=_WORDS[newest.state][newest.conclusion],
        job=str(newest.job_id),
        line=newest.line,
        signature=newest.signature,
        completed_at=newest.completed_at,
    )


def _run(row: CellRow | Run) -> Run:
    if isinstance(row, Run):
        return row
    return Run(
        id=str(row.job_id),
        status=STATES[row.state],
        conclusion=CONCLUSIONS[row.conclusion],
        attempt=row.attempt,
        shard=row.shard,
        shards=row.shards,
        completed_at=row.completed_at,
        line=row.line,
        signature=row.signature,
    )


def _add_awaited(by_commit: dict[str, dict[int, Cell]], columns: Sequence[Column], facts: Facts) -> None:
    """Add a mark for jobs that a workflow had on other commits, while its run on this one goes on."""
    running: defaultdict[str, set[str]] = defaultdict(set)
    for run in facts.runs:
        if run["status"] != "completed" and run["event"] not in FOREIGN_EVENTS and run["name"]:
            running[run["name"]].add(run["head_sha"])
    for place, column in enumerate(columns):
        for sha in running.get(column.workflow, ()) if column.source == "actions" else ():
            if not column.name.endswith(DID_NOT_START):
                by_commit[sha].setdefault(place, Cell(character=cells.NONE_YET))


def _line(commit: CommitRow, gone: bool, found: dict[int, Cell], columns: Sequence[Column]) -> Line:
    deciding = [cell for place, cell in found.items() if columns[place].blocking]
    characters = {cell.character for cell in deciding}
    verdict: Verdict = "none"
    if characters & (cells.FAILED | {cells.CANCELLED}):
        verdict = "red"
    elif characters & cells.UNFINISHED:
        verdict = "running"
    elif characters & cells.PASSED:
        verdict = "green"
    ended = [cell.completed_at for cell in deciding if cell.completed_at is not None]
    finished = bool(deciding) and not characters & cells.UNFINISHED
    return Line(
        commit=commit,
        gone=gone,
        cells=found,
        verdict=verdict,
        signal_at=max(ended, default=None) if finished else None,
    )


def chosen(grid: Grid, keep: Callable[[Column], bool]) -> Grid:
    """Return the grid with some of its columns only."""
    places = [place for place, column in enumerate(grid.columns) if keep(column)]
    renumbered = {place: new for new, place in enumerate(places)}
    return Grid(
        columns=tuple(grid.columns[place] for place in places),
        lines=tuple(
            Line(
                commit=line.commit,
                gone=line.gone,
                cells={renumbered[at]: cell for at, cell in line.cells.items() if at in renumbered},
                verdict=line.verdict,
                signal_at=line.signal_at,
            )
            for line in grid.lines
        ),
    )
