"""What did a job do on the commits of a branch? Since when does it fail there, and where did it last pass?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.trunk import broken_columns, grid, name_patterns, other_runs, reading, same_names
from bot.ci.trunk.reading import Branch
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.store import rows
from bot.ingest import watched

if TYPE_CHECKING:
    from bot.ci.trunk.cells import Cell
    from bot.ci.trunk.grid import Facts, Grid
    from bot.ci.trunk.tables import CommitRow
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

CLEAN = 10  # commits before a failure on which the job must not have failed, or it did not begin there


@dataclass(frozen=True, kw_only=True)
class Before:
    """What a job did on the commits of a branch."""

    results: int  # passes and failures
    failures: int  # among them
    since: CommitRow | None  # the first bad commit, None: it does not fail now
    cell: Cell | None  # of the newest result


class FailedJob(NamedTuple):
    """A job that failed on a commit: of upstream by its id, of a backend by its run and its name there."""

    job_id: int | None
    run_id: str = ""
    name: str = ""  # workflow / job, without shard and runner


class Beginning(NamedTuple):
    """The commit that a job fails since, and the one where it last passed."""

    first_bad: str
    last_good: str
    gap: bool  # whether commits between the two have no result


async def find_branch(tx: Transaction, repo: str, name: str) -> Branch | None:
    """Return a branch of a repository, None where nothing is known of that."""
    ids = await watched.ids(tx, repo)
    repository = await rows.repository(tx, ids) if ids else None
    if repository is None:
        return None
    names = await watched.names_of_same_repository(tx, repository["full_name"])
    return Branch(repository=repository, names=frozenset(names), name=name)


async def find_line(tx: Transaction, repo: str, sha: str) -> tuple[Branch, CommitRow] | None:
    """Return the branch that a commit is a line of, the default one first."""
    branch = await find_branch(tx, repo, "")
    if branch is None:
        return None
    lines = await rows.branches_of(tx, branch.repository["repository_id"], sha)
    default = branch.repository["default_branch"]
    line = min(lines, key=lambda one: (one["branch"] != default, one["branch"]), default=None)
    if line is None:
        return None
    return Branch(repository=branch.repository, names=branch.names, name=line["branch"]), line


def summarize_job(history: Grid, name: str) -> Before:
    """Return what a job did on a branch."""
    place = next((at for at, column in enumerate(history.columns) if column.name == name), None)
    column = [] if place is None else history.column(place)
    results = [cell for cell in column if cell is not None and (cell.passed or cell.broken)]
    change = broken_columns.failing_since(column)
    return Before(
        results=len(results),
        failures=sum(cell.broken for cell in results),
        since=None if change is None else history.lines[change.first_bad].commit,
        cell=results[0] if results else None,
    )


async def find_beginning(
    tx: Transaction, settings: Settings, repo: str, sha: str, failed: FailedJob
) -> tuple[Branch, Beginning] | None:
    """Return since when a job fails that failed on a commit; None where it did not begin to fail there."""
    line = await find_line(tx, repo, sha)
    if line is None or line[1]["gone"]:
        return None
    branch, commit = line
    options = settings.of(TrunkSettings)
    here = await reading.read_facts(tx, settings, branch, [commit], jobs=True)
    name = _column_name(here, options, failed)
    older, _ = await reading.newest_commits(tx, branch, before=sha, limit=CLEAN)
    past = grid.build_grid(
        await reading.read_facts(tx, settings, branch, [commit, *older]), options
    ).on_branch()
    place = next((at for at, column in enumerate(past.columns) if column.name == name), None)
    column = [] if place is None else past.column(place)
    change = broken_columns.failing_since(column)
    if change is None or change.first_bad != 0 or change.last_good is None:
        return None
    if any(cell is not None and cell.fails for cell in column[1:]):
        return None
    good = past.lines[change.last_good].commit
    return branch, Beginning(sha, good["sha"], gap=change.last_good > 1)


def _column_name(facts: Facts, settings: TrunkSettings, failed: FailedJob) -> str | None:
    """Return the name of the column that a job is in."""
    if failed.job_id is not None:
        jobs = same_names.place_jobs(facts.jobs, same_names.describe_runs(facts.runs), shards=False)
        key = next((one.column for one in jobs if one.row["job_id"] == failed.job_id), None)
        return None if key is None else name_patterns.column_name(facts.columns[key], settings)
    ending = f" / {failed.name}"
    reported = other_runs.find_runs(facts, settings, shards=False)
    return next(
        (one.name for one, run in reported if run.id == failed.run_id and one.name.endswith(ending)), None
    )
