"""Reading the grid of a branch, or the single runs of one job, from the database."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.errors import Rejected
from bot.ingest import repositories
from bot.jobs import branches, cells, commit_cells, grid, grid_columns, job_names, rows
from bot.jobs.cells import Cell
from bot.jobs.grid import Facts
from bot.jobs.settings import TrunkSettings
from bot.oot.allowlist import versions as allowlists
from bot.oot.results.visibility import read_private_names
from bot.web.openapi import UNKNOWN_REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.jobs.cells import Run
    from bot.jobs.commit_cells import ByColumn, Outline
    from bot.jobs.rows import BackendJobRow, RepositoryRow
    from bot.jobs.tables import ColumnRow, CommitRow
    from bot.web.access import Hidden

DAY = 86_400_000
# the clocks of authors are off by that much at most, or their commits are shown in the order of these clocks
SKEW = 7 * DAY
LINES_MOST = 500
UNREAD = Cell(character=cells.OTHER)
BEYOND = 50  # commits read beyond those shown, so that the order holds at the end of a page
RunsByCommit = dict[str, list["Run"]]


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A branch of a repository."""

    repository: RepositoryRow
    names: frozenset[str]  # all that the repository has had, case folded
    name: str


async def find_branch(tx: Transaction, hidden: Hidden, repo: str, branch: str) -> Branch:
    """Return a branch; without a name, the default one. Raises the same Rejected 404 for private and unknown."""
    ids = set() if hidden.has(repo) else await repositories.read_ids(tx, repo)
    repository = await rows.repository(tx, ids) if ids else None
    if repository is None or hidden.has(repository["full_name"], repository["repository_id"]):
        raise UNKNOWN_REPOSITORY.because(f"nothing of {repo[:200]} is known here")
    name = branch or repository["default_branch"] or ""
    names = await repositories.read_names_of_same(tx, repository["full_name"])
    return Branch(repository=repository, names=frozenset(names), name=name)


async def newest_commits(
    tx: Transaction, branch: Branch, *, before: str | None, limit: int, until: int | None = None
) -> tuple[list[CommitRow], bool]:
    """Return commits of a branch, newest first, and whether there are more; `before` is the SHA that they follow.

    With `until` (epoch milliseconds) none that is newer.

    Raises Rejected 404 when `before` is not on the branch.
    """
    identifier = branch.repository["repository_id"]
    if before:
        last = await rows.commit(tx, identifier, branch.name, before)
        if last is None:
            raise Rejected(
                404, "unknown_commit", f"{before[:64]} is not a commit of {branch.name[:200]} here"
            )
        until = last["at"] + SKEW
    wanted = limit + BEYOND
    while True:
        commits = await rows.commits(tx, identifier, branch.name, until=until, limit=wanted)
        ordered = grid.order_commits(commits)
        shas = [row["sha"] for row in ordered]
        first = shas.index(before) + 1 if before in shas else 0
        if len(commits) < wanted or len(ordered) - first >= limit + 1:
            return ordered[first : first + limit], len(ordered) > first + limit
        wanted *= 2


async def read_facts(
    tx: Transaction,
    settings: Settings,
    branch: Branch,
    commits: Sequence[CommitRow],
    *,
    only: Collection[int] | None = None,
    jobs: bool = False,
    outlined: Mapping[str, Outline] | None = None,
) -> Facts:
    """Return everything that ran on some commits; with `jobs`, the single runs of upstream's jobs as well.

    With `only`, columns other than these may be missing. The cells of commits that are `outlined` are left out: only
    their columns are known, for readers that need only the columns.
    """
    identifier, shas = branch.repository["repository_id"], [row["sha"] for row in commits]
    options = settings.of(TrunkSettings)
    known = _unread(shas, outlined or {})
    if not jobs:
        known |= await read_stored_cells(tx, identifier, [sha for sha in shas if sha not in known])
    read = await rows.cells(tx, identifier, [sha for sha in shas if sha not in known], only)
    ids = {key for of_commit in known.values() for key in of_commit}
    ids |= {key for row in read for key in (row["column_id"], row["numbered_column_id"]) if key is not None}
    columns = await rows.columns(tx, identifier, ids)
    if contexts := grid_columns.contexts_of(columns.values()):
        columns |= await rows.columns_shown_as(tx, identifier, contexts)
    joined = job_names.join_columns(columns, options)
    if twice := [sha for sha, of_commit in known.items() if _joins(of_commit, joined)]:
        read += await rows.cells(tx, identifier, twice, only)
    made_now = {row["head_sha"] for row in read}
    runs = await rows.runs(tx, identifier, [sha for sha in shas if sha in made_now or sha not in known])
    runs += await rows.telling_runs(
        tx, identifier, [sha for sha in shas if sha in known and sha not in made_now]
    )
    shows_checks = options.ci_checks == "on"
    return Facts(
        commits=commits,
        cells={**known, **commit_cells.make_cells(read, commit_cells.describe_runs(runs), joined)},
        jobs=read if jobs else (),
        columns=columns,
        runs=runs,
        backend_jobs=await _backend_jobs(tx, settings, branch.names, shas),
        devices=await device_names(tx),
        checks=await rows.checks(tx, identifier, shas, ours=settings.app_id) if shows_checks else (),
        unstable=await grid_columns.unstable_names(tx, identifier),
        required=await branches.required_names(tx, identifier, branch.name),
        groups=options.ci_groups.of(branch.names),
    )


async def read_stored_cells(tx: Transaction, repository_id: int, shas: Sequence[str]) -> dict[str, ByColumn]:
    """Return the cells of the commits whose cells are stored: nearly all, in a fraction of the time."""
    stored = await rows.stored_cells(tx, repository_id, shas) if shas else {}
    return {sha: commit_cells.from_bytes(row.cells) for sha, row in stored.items() if row.cells is not None}


async def read_outlines(tx: Transaction, repository_id: int, shas: Sequence[str]) -> dict[str, Outline]:
    """Return the outlines of the commits that have stored cells."""
    outlines = {}
    for sha, (mark, outline) in (await rows.stored_outlines(tx, repository_id, shas)).items():
        outlines[sha] = None if outline is None else commit_cells.outline_from_bytes(outline, mark)
    # an earlier version did not store them
    decoded = await read_stored_cells(
        tx, repository_id, [sha for sha, outline in outlines.items() if outline is None]
    )
    known = {sha: outline for sha, outline in outlines.items() if outline is not None}
    return known | {sha: commit_cells.outline(cells) for sha, cells in decoded.items()}


async def device_names(tx: Transaction) -> dict[str, str]:
    """Return the devices of the backends that have one, by case folded name."""
    allowlist = await allowlists.read_in_force(tx)
    return {entry.key: entry.device for entry in (allowlist.entries if allowlist else ()) if entry.device}


async def read_runs(
    tx: Transaction, settings: Settings, branch: Branch, shas: Sequence[str], name: str
) -> RunsByCommit:
    """Return every run of a column by commit, each shard by itself."""
    options = settings.of(TrunkSettings)
    identifier = branch.repository["repository_id"]
    columns = await rows.columns(tx, identifier)
    shown = {key: job_names.column_name(column, options) for key, column in columns.items()}
    wanted = {key for key, shown_name in shown.items() if shown_name == name}
    if not wanted:
        return {}
    cells = await rows.cells(tx, identifier, shas, _with_siblings(columns, wanted))
    about = commit_cells.describe_runs(await rows.runs(tx, identifier, shas))
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    for placed in commit_cells.place_jobs(cells, about, shards=False):
        if placed.column in wanted:
            runs[placed.row["head_sha"]].append(commit_cells.make_run(placed))
    return dict(runs)


async def column_names(tx: Transaction, settings: Settings, branch: Branch) -> list[str]:
    """Return the names of the columns of upstream's own jobs that the grid may show."""
    options = settings.of(TrunkSettings)
    columns = await rows.columns(tx, branch.repository["repository_id"])
    return sorted({name for column in columns.values() if (name := job_names.column_name(column, options))})


async def _backend_jobs(
    tx: Transaction, settings: Settings, names: Collection[str], shas: Sequence[str]
) -> list[BackendJobRow]:
    """Return what backends reported on some commits; names of private ones are replaced."""
    jobs = await rows.backend_jobs(tx, names, shas)
    private = await read_private_names(tx, settings, {row["downstream_repo"] for row in jobs})
    return [private.of_row(row, row["downstream_repo"]) for row in jobs]


def _unread(shas: Collection[str], outlined: Mapping[str, Outline]) -> dict[str, ByColumn]:
    """Return placeholders for outlined cells; most commits have the same columns, and share them."""
    known = {sha: outlined[sha].present for sha in shas if sha in outlined}
    made = {
        present: dict.fromkeys(commit_cells.columns_of(present), UNREAD) for present in set(known.values())
    }
    return {sha: made[present] for sha, present in known.items()}


def _joins(cells: ByColumn, joined: Mapping[int, int]) -> bool:
    """Whether two columns of a commit have become one, whose cell has to be made from their runs."""
    return bool(joined) and len({joined.get(key, key) for key in cells}) < len(cells)


def _with_siblings(columns: Mapping[int, ColumnRow], wanted: set[int]) -> set[int]:
    """Add the columns that may hold the same jobs: only together do they show whether numbers are shards."""
    heads = {_empty_head(columns[key]) for key in wanted}
    return {key for key, column in columns.items() if _empty_head(column) in heads}


def _empty_head(column: ColumnRow) -> tuple[str, str]:
    return column["workflow"], column["job"].partition(" (")[0]
