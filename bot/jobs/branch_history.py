"""Since when a job fails on a branch, where it last passed, and what was only an outage or a flake."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from bot.ingest import repositories
from bot.jobs import branch_reads, commit_cells, grid, job_names, rows
from bot.jobs.branch_reads import Branch
from bot.jobs.cells import FAILED, FLAKY, PASSED, SUCCESS
from bot.jobs.settings import TrunkSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.jobs.cells import Cell
    from bot.jobs.grid import Facts, Grid
    from bot.jobs.tables import CommitRow

ColumnCells = Sequence["Cell | None"]
BROKEN_AFTER = 3  # failures in a row
SAME_TEST_AFTER = 2  # failures in a row, if a test fails in all of them that the job passed before
OUTAGE_FROM = 10  # columns failing on one commit
STALE_AFTER = 3  # commits without a result
EVIDENCE = PASSED | FAILED
NAMED_BY = {"backends": 3, "checks": 2}  # parts of a column's name that say whose it is
# a failure between two passes; or two that differ, each then alone of its kind
_FLAKE = re.compile(f"(?<={SUCCESS})[{''.join(sorted(FAILED))}]{{1,{BROKEN_AFTER - 1}}}(?={SUCCESS})|{FLAKY}")
CLEAN = 10  # commits before a failure on which the job must not have failed, or it did not begin there


class ColumnState(StrEnum):
    """How a column stands on a branch."""

    OK = "ok"
    SUSPECT = "suspect"  # one or two failures in a row
    BROKEN = "broken"
    UNKNOWN = "unknown"  # nothing finished on the newest commits


@dataclass(frozen=True, kw_only=True)
class Breakage:
    """A column that fails on the newest commits. Places are indexes into the column, 0 is the newest commit."""

    first_bad: int
    last_good: int | None  # None: before what is known
    failures: int
    same: bool  # whether every failure looks the same; else there are several

    @property
    def suspects(self) -> range:
        """The commits that may have broken it, newest first: everything after the last good one."""
        return range(self.first_bad, self.last_good if self.last_good is not None else self.first_bad + 1)


@dataclass(frozen=True, kw_only=True)
class StateChange:
    """A change of a column's state, decided by one commit's cell."""

    place: int
    before: ColumnState
    after: ColumnState
    first_bad: int
    last_good: int | None


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """How often a column passed and failed on finished commits; a failure counts once."""

    runs: int = 0
    passed: int = 0
    infra: int = 0  # on a commit where many columns failed, or its log says so
    broken: int = 0  # in streaks of three or more
    flaky: int = 0  # in shorter streaks, and passes on a second try

    @property
    def failures(self) -> int:
        """All failures; a pass on a second try is none."""
        return self.runs - self.passed


@dataclass(frozen=True, kw_only=True)
class JobHistory:
    """What a job did on the commits of a branch."""

    results: int  # passes and failures
    failures: int  # among them
    since: CommitRow | None  # the first bad commit, None: it does not fail now
    cell: Cell | None  # of the newest result


class FailedJob(NamedTuple):
    """A job that failed on a commit: upstream's by its id, a backend's by its run and its name there."""

    job_id: int | None
    run_id: str = ""
    name: str = ""  # workflow / job, without shard and runner


class BrokenSince(NamedTuple):
    """The commit since which a job fails, and the one where it last passed."""

    first_bad: str
    last_good: str
    gap: bool  # whether commits between the two have no result


def outages(columns: Iterable[tuple[str, ColumnCells]]) -> frozenset[int]:
    """Return the commits on which so many columns failed that the code is hardly the cause."""
    failing: defaultdict[int, list[str]] = defaultdict(list)
    for workflow, column in columns:
        for place, cell in enumerate(column):
            if cell is not None and cell.character in FAILED:
                failing[place].append(workflow)
    return frozenset(place for place, workflows in failing.items() if is_outage(workflows))


def is_outage(workflows: Sequence[str]) -> bool:
    """Whether so many columns failed on a commit that the code is hardly the cause, by their workflows.

    Where all of them belong to one workflow it may well be: what these jobs share is broken.
    """
    return len(workflows) >= OUTAGE_FROM and len(set(workflows)) > 1


def workflow_of(name: str, workflow: str) -> str:
    """Return the workflow whose jobs fail together; that of a backend is in the column's name."""
    parts = NAMED_BY.get(workflow, 0)
    return " / ".join(name.split(" / ")[:parts]) if parts else workflow


def breakage(column: ColumnCells) -> Breakage | None:
    """Return since when a column is broken, None where it is not."""
    last = failing_since(column)
    if last is None or last.after is not ColumnState.BROKEN:
        return None
    failures = [cell for place, cell in _evidence(column) if cell.broken and place <= last.first_bad]
    return Breakage(
        first_bad=last.first_bad,
        last_good=last.last_good,
        failures=len(failures),
        same=_same(failures),
    )


def failing_since(column: ColumnCells) -> StateChange | None:
    """Return the change that made a column fail, as it still does; None where it passes."""
    last = None
    for change in changes(column) if not _passes(column) else ():
        last = change
    return None if last is None or last.after is ColumnState.OK else last


def flakes(column: ColumnCells) -> frozenset[int]:
    """Return the commits with a flake: a pass on a second try, or a lone failure between two passes.

    Two failures in a row that are known to differ are both alone.
    """
    seen = [
        (place, cell.character) for place, cell in enumerate(column) if cell and cell.character in EVIDENCE
    ]
    text = "".join([character for _, character in seen])
    flakes: set[int] = set()
    for match in _FLAKE.finditer(text):
        places = [place for place, _ in seen[match.start() : match.end()]]
        if len(places) == 1 or not _same([cell for at in places if (cell := column[at])]):
            flakes.update(places)
    return frozenset(flakes)


def column_state(column: ColumnCells) -> ColumnState:
    """Return how a column stands now."""
    if is_stale(column):
        return ColumnState.UNKNOWN
    last = failing_since(column)
    return ColumnState.OK if last is None else last.after


def is_stale(column: ColumnCells) -> bool:
    """Whether none of the newest commits has a result."""
    return not any(cell is not None and cell.character in EVIDENCE for cell in column[:STALE_AFTER])


def changes(column: ColumnCells) -> Iterator[StateChange]:
    """Yield every change of a column's state, oldest first. A pass on a second try repairs nothing.

    Failures in a row that share a failing test, which the pass before them lacks, need no third one to be a breakage.
    One that is known to differ from the one before it is a suspect of its own: a change from suspect to suspect.
    """
    if not any(cell is not None and cell.character in FAILED for cell in column):
        return  # nearly all columns
    failures: list[int] = []
    now, good, before_streak = ColumnState.OK, None, None
    common: frozenset[str] = frozenset()  # tests that failed in all of these
    began, signature = 0, None  # the first of those that may be alike, and how these failed
    for place, cell in reversed(list(_evidence(column))):
        differs = False
        if cell.broken:
            before_streak = good if not failures else before_streak
            failures.append(place)
            tests = frozenset((cell.failed_tests or "").split(",")) - {""}
            common = common & tests if len(failures) > 1 else tests
            same_test = common and before_streak is not None and len(failures) >= SAME_TEST_AFTER
            broken = now is ColumnState.BROKEN or same_test or len(failures) >= BROKEN_AFTER
            after = ColumnState.BROKEN if broken else ColumnState.SUSPECT
            differs = not broken and bool(signature and cell.signature and cell.signature != signature)
            signature = cell.signature or signature
            if broken or len(failures) == 1:
                began = failures[0]
            elif differs:
                began = place
        elif cell.character == "F" and now is ColumnState.BROKEN:
            good = place
            continue
        else:
            after, good = ColumnState.OK, place
        if after is not now or differs:
            yield StateChange(place=place, before=now, after=after, first_bad=began, last_good=before_streak)
        now = after
        if after is ColumnState.OK:
            failures, signature = [], None


def reliability(column: ColumnCells, outage: Collection[int] = ()) -> Reliability:
    """Count a column's passes and failures. A failure of the infrastructure neither extends nor ends a streak."""
    runs = passed = infra = broken = flaky = streak = 0
    for place, cell in _evidence(column):
        runs += 1
        if cell.infra or (cell.broken and place in outage):
            infra += 1
        elif cell.broken:
            streak += 1
        else:
            passed += 1
            flaky += cell.character == "F"
            broken, flaky, streak = *_ended(streak, broken, flaky), 0
    broken, flaky = _ended(streak, broken, flaky)
    return Reliability(runs=runs, passed=passed, infra=infra, broken=broken, flaky=flaky)


async def find_branch_of(tx: Transaction, repo: str, name: str) -> Branch | None:
    """Return a branch of a repository, None where nothing is known of the repository."""
    ids = await repositories.read_ids(tx, repo)
    repository = await rows.repository(tx, ids) if ids else None
    if repository is None:
        return None
    names = await repositories.read_names_of_same(tx, repository["full_name"])
    return Branch(repository=repository, names=frozenset(names), name=name)


async def find_line(tx: Transaction, repo: str, sha: str) -> tuple[Branch, CommitRow] | None:
    """Return the branch that a commit is on, preferring the default one, and its line there."""
    branch = await find_branch_of(tx, repo, "")
    if branch is None:
        return None
    lines = await rows.branches_of(tx, branch.repository["repository_id"], sha)
    default = branch.repository["default_branch"]
    line = min(lines, key=lambda line: (line["branch"] != default, line["branch"]), default=None)
    if line is None:
        return None
    return Branch(repository=branch.repository, names=branch.names, name=line["branch"]), line


def summarize_job(history: Grid, name: str) -> JobHistory:
    """Return what a job did on a branch."""
    place = next((at for at, column in enumerate(history.columns) if column.name == name), None)
    column = [] if place is None else history.column(place)
    results = [cell for cell in column if cell is not None and (cell.passed or cell.broken)]
    change = failing_since(column)
    return JobHistory(
        results=len(results),
        failures=sum(cell.broken for cell in results),
        since=None if change is None else history.lines[change.first_bad].commit,
        cell=results[0] if results else None,
    )


async def find_beginning(
    tx: Transaction, settings: Settings, repo: str, sha: str, failed: FailedJob
) -> tuple[Branch, BrokenSince] | None:
    """Return since when a job that failed on a commit has failed; None where it did not begin to fail there."""
    line = await find_line(tx, repo, sha)
    if line is None or line[1]["gone"]:
        return None
    branch, commit = line
    options = settings.of(TrunkSettings)
    here = await branch_reads.read_facts(tx, settings, branch, [commit], jobs=True)
    name = _column_name(here, options, failed)
    older, _ = await branch_reads.newest_commits(tx, branch, before=sha, limit=CLEAN)
    past = grid.build_grid(
        await branch_reads.read_facts(tx, settings, branch, [commit, *older]), options
    ).on_branch()
    place = next((at for at, column in enumerate(past.columns) if column.name == name), None)
    column = [] if place is None else past.column(place)
    change = failing_since(column)
    if change is None or change.first_bad != 0 or change.last_good is None:
        return None
    if any(cell is not None and cell.fails for cell in column[1:]):
        return None
    good = past.lines[change.last_good].commit
    return branch, BrokenSince(sha, good["sha"], gap=change.last_good > 1)


def _passes(column: ColumnCells) -> bool:
    """Whether the newest result is a clean pass: whatever came before, nothing is wrong now."""
    for cell in column:
        if cell is not None and cell.character in EVIDENCE:
            return cell.character == SUCCESS
    return True


def _ended(streak: int, broken: int, flaky: int) -> tuple[int, int]:
    return (broken + streak, flaky) if streak >= BROKEN_AFTER else (broken, flaky + streak)


def _evidence(column: ColumnCells) -> Iterator[tuple[int, Cell]]:
    """Yield the cells with a result, newest first."""
    for place, cell in enumerate(column):
        if cell is not None and cell.character in EVIDENCE:
            yield place, cell


def _same(cells: Sequence[Cell]) -> bool:
    """Whether no two failures are known to differ; one without a log may equal any."""
    return len({cell.signature for cell in cells if cell.signature}) <= 1


def _column_name(facts: Facts, settings: TrunkSettings, failed: FailedJob) -> str | None:
    """Return the name of the column that a job is in."""
    if failed.job_id is not None:
        jobs = commit_cells.place_jobs(facts.jobs, commit_cells.describe_runs(facts.runs), shards=False)
        key = next((job.column for job in jobs if job.row["job_id"] == failed.job_id), None)
        return None if key is None else job_names.column_name(facts.columns[key], settings)
    ending = f" / {failed.name}"
    reported = grid.find_runs(facts, settings, shards=False)
    return next(
        (job.name for job, run in reported if run.id == failed.run_id and job.name.endswith(ending)), None
    )
