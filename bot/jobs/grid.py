"""The grid: commits down, jobs across, with one cell for all runs of a job on a commit."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from bot.jobs import branches, cells, collection, commit_cells, grid_columns, job_names
from bot.jobs.cells import NO_FAILURE, Cell, Run
from bot.jobs.commit_cells import FOREIGN_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bot.ingest.record_rows import CheckRunRow
    from bot.jobs.commit_cells import ByColumn
    from bot.jobs.grid_columns import DuplicateStatuses
    from bot.jobs.rows import BackendJobRow, RunRow
    from bot.jobs.settings import GroupPatterns, TrunkSettings
    from bot.jobs.tables import CellRow, ColumnRow, CommitRow

Source = Literal["actions", "elsewhere", "oot", "check", "status"]
DID_NOT_START = "(did not start)"
FILTER_MOST = 200  # characters of a filter by name
OWN = frozenset(("actions", "elsewhere"))  # sources of jobs of upstream, on GitHub or another CI
Verdict = Literal["green", "red", "running", "none"]
OTHER, RERUNS, BACKENDS, CHECKS, UNSTABLE = "other", "Reruns", "Backends", "Checks", "Unstable"
# arguments of jobs that run tests once more
RERUN_FLAGS = frozenset(("mem_leak_check", "rerun_disabled_tests"))
_SOURCES: Mapping[str, Source] = {grid_columns.ACTIONS: "actions", grid_columns.STATUS: "status"}
_GROUPS: Mapping[Source, str] = {"oot": BACKENDS, "check": CHECKS, "status": CHECKS}


class OtherCell(NamedTuple):
    """Where a run belongs."""

    sha: str
    name: str  # of the column
    workflow: str
    source: Source
    check: str = ""  # the name of the check run that it is


PlacedRun = tuple[OtherCell, Run]


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
        """The name that its backend goes by, None where it is no backend's."""
        return self.name.split(" / ")[1] if self.source == "oot" else None


@dataclass(kw_only=True, eq=False)
class GridLine:
    """A commit with its cells, by the place of their column."""

    commit: CommitRow
    gone: bool
    cells: dict[int, Cell]
    verdict: Verdict = "none"
    signal_at: int | None = None  # when the last blocking job ended, once all have


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
    groups: GroupPatterns = ()  # of the repository's columns


@dataclass(kw_only=True, eq=False)
class _Named:
    """What is known of a column before it has a place."""

    workflow: str
    source: Source
    unstable: bool
    rerun: bool
    required: bool  # by GitHub


def order_commits(commits: Sequence[CommitRow]) -> list[CommitRow]:
    """Return commits newest first: each before its parent, else by their times and names.

    The parent is the head before the push. Where it is unknown, times decide, though authors choose these.
    """
    known = {row["sha"]: row for row in commits}
    children: defaultdict[str, list[CommitRow]] = defaultdict(list)
    for row in commits:
        if row["parent"] in known and row["parent"] != row["sha"]:
            children[row["parent"]].append(row)
    ordered: list[CommitRow] = []
    seen: set[str] = set()
    for start in sorted(commits, key=_newest_first, reverse=True):
        _add_before(start, children, ordered, seen)
    return ordered


def gone_commits(commits: Sequence[CommitRow]) -> frozenset[str]:
    """Return the commits that left the branch: missing in GitHub's list, or replaced by a forced push."""
    replaced = {row["replaces"] for row in commits if row["replaces"]}
    parents = {row["parent"] for row in commits if row["parent"]}
    return frozenset(
        row["sha"] for row in commits if row["gone"] or (row["sha"] in replaced and row["sha"] not in parents)
    )


def find_runs(facts: Facts, settings: TrunkSettings, *, shards: bool) -> Iterator[PlacedRun]:
    """Yield runs that are no jobs of upstream, with their places; with `shards`, each shard has its own column."""
    yield from _unstarted(facts, settings)
    yield from _backend_runs(facts, shards=shards)
    yield from _check_runs(facts)


def place_backend_jobs(
    facts: Facts, *, shards: bool
) -> Iterator[tuple[str, BackendJobRow, job_names.JobName]]:
    """Yield each job that a backend reported, with the name of its column, and its own name taken apart."""
    by_commit: defaultdict[tuple[str, str], list[BackendJobRow]] = defaultdict(list)
    for row in facts.backend_jobs:
        by_commit[row["head_sha"] or "", row["downstream_repo"]].append(row)
    for (_, backend), rows in by_commit.items():
        names = [job_names.parse_name(row["workflow_name"], row["job_name"]) for row in rows]
        label = facts.devices.get(backend.casefold(), backend)
        for row, name in zip(rows, names if shards else job_names.resolve_shards(names), strict=True):
            shown = f"{name.workflow} / {name.numbered}" if shards else name.shard_free
            yield f"backends / {label} / {shown}", row, name


def name_check(row: CheckRunRow) -> tuple[str, str]:
    """Return the column of another App's check run, and the name it has on GitHub."""
    check = row["name"] or ""
    return f"checks / {row['app_slug'] or 'app'} / {check}", check


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Lines, newest first, and the columns in which any of them has a cell."""

    columns: tuple[Column, ...]
    lines: tuple[GridLine, ...]
    blocking_named: bool = False  # whether some are said to block; else all of upstream's do

    def greens_before(self) -> list[str | None]:
        """Return, for each red line, the newest green commit before it; None for other lines, or if none is here."""
        greens: list[str | None] = []
        green: str | None = None
        for line in reversed(self.lines):
            greens.append(green if line.verdict == "red" else None)
            if line.verdict == "green" and not line.gone:
                green = line.commit["sha"]
        return greens[::-1]

    def on_branch(self) -> Grid:
        """Return the grid without lines that left the branch: they are no evidence of how the branch stands."""
        kept = tuple(line for line in self.lines if not line.gone)
        return self if len(kept) == len(self.lines) else replace(self, lines=kept)

    def column(self, place: int) -> list[Cell | None]:
        """Return one column's cells, newest first."""
        return [line.cells.get(place) for line in self.lines]


def key_of_column(name: str) -> str:
    """Return a column's key: the same on every page, whatever other columns exist."""
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:10]


def build_grid(facts: Facts, settings: TrunkSettings, *, shards: bool = False) -> Grid:
    """Build the grid of some commits; with `shards`, which needs `jobs`, every shard has a column."""
    jobs = facts.cells
    if shards:
        jobs = commit_cells.make_cells(facts.jobs, commit_cells.describe_runs(facts.runs), shards=True)
    statuses = grid_columns.find_duplicates(facts.columns)
    shown = _names(facts, settings, statuses)
    gathered = _gather(facts, settings, jobs, shown, statuses, shards=shards)
    named = _names_blocking(gathered, settings)
    columns = _columns(gathered, facts.groups, settings, named=named)
    places = {column.name: place for place, column in enumerate(columns)}
    place_of = {key: places[name] for key, name in shown.items() if name in places}
    by_commit: defaultdict[str, dict[int, Cell]] = defaultdict(dict)
    for sha, of_commit in jobs.items():  # there are many thousands
        own = grid_columns.without_statuses(of_commit, statuses)
        by_commit[sha] = {place_of[key]: cell for key, cell in own.items() if key in place_of}
    for other, cell in gathered.others:
        _add_run(by_commit[other.sha], places[other.name], cell)
    for sha, of_commit in jobs.items() if statuses.all else ():
        for key, cell in grid_columns.only_statuses(of_commit, statuses).items():
            if key in place_of:
                by_commit[sha].setdefault(place_of[key], cell)
    _add_awaited(by_commit, columns, facts)
    gone = gone_commits(facts.commits)
    blocking = frozenset(place for place, column in enumerate(columns) if column.blocking)
    made = tuple(
        _line(commit, commit["sha"] in gone, by_commit.get(commit["sha"], {}), blocking)
        for commit in facts.commits
    )
    return Grid(columns=columns, lines=made, blocking_named=named)


def runs_of_column(
    facts: Facts, settings: TrunkSettings, name: str, *, shards: bool = False
) -> tuple[Run, ...]:
    """Return every run of one column, as a cell's details show them; `facts` are those of one commit, with its jobs."""
    statuses = grid_columns.find_duplicates(facts.columns)
    shown = _names(facts, settings, statuses)
    jobs = commit_cells.place_jobs(facts.jobs, commit_cells.describe_runs(facts.runs), shards=shards)
    known = {(run["id"], run["run_attempt"]): run for run in facts.runs}
    # every attempt has the event of its run, but not its actor: that of an attempt without a record is unknown
    other: dict[int, RunRow] = {run["id"]: {**run, "triggering_actor_login": None} for run in facts.runs}
    placed = [job for job in jobs if shown.get(job.column) == name]
    told_by_others = [job for job in placed if job.column not in statuses.all]
    runs = [
        commit_cells.make_run(
            job, known.get((job.row["run_id"], job.row["attempt"])) or other.get(job.row["run_id"])
        )
        for job in told_by_others or placed
    ]
    runs += [run for cell, run in find_runs(facts, settings, shards=shards) if cell.name == name]
    return cells.details(runs).runs if runs else ()


def _add_before(
    start: CommitRow, children: dict[str, list[CommitRow]], ordered: list[CommitRow], seen: set[str]
) -> None:
    """Add a commit after everything that was pushed onto it; a circle, which only forged data has, is broken."""
    stack = [(start, False)]
    while stack:
        row, ready = stack.pop()
        if ready:
            ordered.append(row)
        elif row["sha"] not in seen:
            seen.add(row["sha"])
            stack.append((row, True))
            stack += [(child, False) for child in sorted(children.get(row["sha"], ()), key=_newest_first)]


def _newest_first(row: CommitRow) -> tuple[int, str]:
    return (row["at"], row["sha"])


def _unstarted(facts: Facts, settings: TrunkSettings) -> Iterator[PlacedRun]:
    """Yield runs that ended before GitHub created their jobs: nothing else would show them."""
    for run in facts.runs:
        if run["unstarted"] and run["event"] not in FOREIGN_EVENTS:
            workflow = run["name"] or "workflow"
            if name := job_names.shown_name(workflow, f"{workflow} / {DID_NOT_START}", settings):
                yield OtherCell(run["head_sha"] or "", name, workflow, "actions"), _unstarted_run(run)


def _unstarted_run(run: RunRow) -> Run:
    conclusion = run["conclusion"] or ""
    return Run(
        id="",
        run_id=run["id"],
        status="completed",
        conclusion=conclusion,
        attempt=run["run_attempt"],
        event=run["event"] or "",
        actor=run["triggering_actor_login"] or "",
        completed_at=run["updated_at"],
        failure={**NO_FAILURE, "line": collection.not_started(conclusion, run["path"])},
    )


def _backend_runs(facts: Facts, *, shards: bool) -> Iterator[PlacedRun]:
    for column, row, name in place_backend_jobs(facts, shards=shards):
        yield OtherCell(row["head_sha"] or "", column, "backends", "oot"), _reported(row, name)


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


def _check_runs(facts: Facts) -> Iterator[PlacedRun]:
    for row in facts.checks:
        name, check = name_check(row)
        yield (
            OtherCell(row["head_sha"] or "", name, "checks", "check", check),
            Run(
                id=str(row["id"]),
                status=row["status"] or "",
                conclusion=row["conclusion"] or "",
                completed_at=row["completed_at"],
            ),
        )


class _Gathered:
    """What is known of each name, and the cells of other runs than upstream's jobs, by commit and name."""

    def __init__(self) -> None:
        self.others: list[tuple[OtherCell, Cell]] = []
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
        """Note a name. Aliases may join two workflows: the column belongs to the alphabetically first."""
        new = _Named(workflow=workflow, source=source, unstable=unstable, rerun=rerun, required=required)
        known = self.named.setdefault(name, new)
        known.unstable |= unstable
        known.rerun |= rerun
        known.required |= required
        if workflow < known.workflow:
            known.workflow, known.source = workflow, source


def _names(facts: Facts, settings: TrunkSettings, statuses: DuplicateStatuses) -> dict[int, str | None]:
    """Return the names of columns; a commit status has the name of the column or check run that it stands for."""
    shown = {key: job_names.column_name(column, settings) for key, column in facts.columns.items()}
    shown |= {key: shown[job] for key, job in statuses.alone.items()}
    if statuses.all and facts.checks:
        checks = {check: name for name, check in map(name_check, facts.checks)}
        for key in statuses.all - statuses.alone.keys():
            shown[key] = checks.get(facts.columns[key]["shown_as"] or "", shown[key])
    return shown


def _add_run(line_cells: dict[int, Cell], place: int, cell: Cell) -> None:
    """Add a cell; if there is one already, which only an odd job name brings about, keep the worse."""
    both = [cell, line_cells[place]] if place in line_cells else [cell]
    line_cells[place] = min(both, key=lambda cell: cells.WORST.index(cell.character))


def _gather(
    facts: Facts,
    settings: TrunkSettings,
    jobs: Mapping[str, ByColumn],
    shown: Mapping[int, str | None],
    statuses: DuplicateStatuses,
    *,
    shards: bool,
) -> _Gathered:
    gathered = _Gathered()
    seen: set[int] = set()
    for of_commit in jobs.values():
        seen.update(grid_columns.without_covered(of_commit, statuses))
    seen = {statuses.alone.get(key, key) for key in seen}
    required, unstable = (
        branches.names_of_jobs(facts.required),
        grid_columns.plain_names(facts.unstable),
    )
    for key in seen:
        if name := shown.get(key):
            _name_job(gathered, name, facts.columns[key], unstable, required | facts.required)
    others: defaultdict[OtherCell, list[Run]] = defaultdict(list)
    for other, run in find_runs(facts, settings, shards=shards):
        others[other].append(run)
    for other, runs in others.items():
        # a run that never started has none of the jobs that may be required
        is_required = other.source == "actions" or (other.source == "check" and other.check in required)
        gathered.name(other.name, other.workflow, other.source, required=bool(required) and is_required)
        gathered.others.append((other, cells.cell(runs)))
    return gathered


def _name_job(
    gathered: _Gathered, name: str, column: ColumnRow, unstable: frozenset[str], required: frozenset[str]
) -> None:
    flags = frozenset(column["flags"].split(","))
    gathered.name(
        name,
        column["workflow"],
        _SOURCES.get(column["source"], "elsewhere"),
        rerun=bool(flags & RERUN_FLAGS),
        unstable="unstable" in flags or grid_columns.covers_name(unstable, column["workflow"], column["job"]),
        required=not required.isdisjoint((column["job"], column["shown_as"] or column["job"])),
    )


def _names_blocking(gathered: _Gathered, settings: TrunkSettings) -> bool:
    """Whether settings or GitHub name blocking jobs; where GitHub requires none of the jobs here, all of them block."""
    return bool(settings.ci_blocking) or any(
        column.required and not name.endswith(DID_NOT_START) for name, column in gathered.named.items()
    )


def _columns(
    gathered: _Gathered, groups: GroupPatterns, settings: TrunkSettings, *, named: bool
) -> tuple[Column, ...]:
    order = {name: place for place, (name, _) in enumerate(groups)}
    order |= {
        name: len(order) + place for place, name in enumerate((OTHER, RERUNS, BACKENDS, CHECKS, UNSTABLE))
    }
    made = [_column(name, known, groups, settings, named=named) for name, known in gathered.named.items()]
    return tuple(sorted(made, key=lambda column: (order[column.group], column.workflow, column.name)))


def _column(
    name: str, known: _Named, groups: GroupPatterns, settings: TrunkSettings, *, named: bool
) -> Column:
    group = _GROUPS.get(known.source)
    if group is None and (known.unstable or known.rerun):
        group = UNSTABLE if known.unstable else RERUNS
    elif group is None:
        group = job_names.first_match(groups, name) or OTHER
    if group == UNSTABLE:
        blocking = False
    elif named:
        blocking = known.required or any(
            job_names.compile_pattern(each).search(name) for each in settings.ci_blocking
        )
    else:
        blocking = known.source in OWN
    return Column(name=name, workflow=known.workflow, group=group, source=known.source, blocking=blocking)


def _add_awaited(by_commit: dict[str, dict[int, Cell]], columns: Sequence[Column], facts: Facts) -> None:
    """Mark the jobs that a workflow had on other commits as awaited, while its run on this one goes on."""
    running: defaultdict[str, set[str]] = defaultdict(set)
    for run in facts.runs:
        if run["status"] != "completed" and run["event"] not in FOREIGN_EVENTS and run["name"]:
            running[run["name"]].add(run["head_sha"] or "")
    for place, column in enumerate(columns):
        for sha in running.get(column.workflow, ()) if column.source == "actions" else ():
            if not column.name.endswith(DID_NOT_START):
                by_commit[sha].setdefault(place, Cell(character=cells.NONE_YET))


def _line(commit: CommitRow, gone: bool, of_commit: dict[int, Cell], blocking: frozenset[int]) -> GridLine:
    deciding = [cell for place, cell in of_commit.items() if place in blocking]
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
    return GridLine(
        commit=commit,
        gone=gone,
        cells=of_commit,
        verdict=verdict,
        signal_at=max(ended, default=None) if finished else None,
    )
