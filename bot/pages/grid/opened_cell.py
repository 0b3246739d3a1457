"""An open cell of the grid, with all runs behind it; what is broken, and the commits that may have broken it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bot.core.escaping import web_url
from bot.jobs import branch_commits, branch_history, branch_reads, grid
from bot.jobs.branch_standing import blocks_merging
from bot.jobs.cells import CANCELLED, FAILED, character
from bot.jobs.grid import UNSTABLE, key_of_column
from bot.jobs.settings import TrunkSettings
from bot.pages.culprits.sections import mark_runs
from bot.pages.grid import grid_view
from bot.pages.logs import sections as logs
from bot.pages.tests import views as tests
from bot.pages.usage import sections as usage
from bot.web.blocks import BackendRunsSubject, CellSubject

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.jobs.branch_commits import HeadOfCommit
    from bot.jobs.branch_history import Breakage
    from bot.jobs.branch_reads import Branch
    from bot.jobs.cells import Cell, Run
    from bot.jobs.grid import Column, Grid, GridLine
    from bot.jobs.tables import CommitRow, FoldedCommitRow
    from bot.pages.grid.grid_view import GridFilter
    from bot.web.blocks import BlockLine

BROKEN_MOST = 20  # columns whose suspects are shown
SUSPECTS_MOST = 100  # of a column
BrokenKind = Literal["blocking", "watched", "unstable"]
RUNS_MOST = 100
DAY = 86_400_000
DAYS = 30  # after its first attempt GitHub runs nothing again
WORTH_IT: Collection[str] = FAILED | {CANCELLED}


@dataclass(frozen=True, kw_only=True)
class OpenedCell:
    """An open cell."""

    line: GridLine
    column: Column
    cell: Cell
    runs: tuple[Run, ...]
    more: int
    twins: bool  # whether there are several jobs of its name
    beside: Mapping[str, Sequence[BlockLine]]  # what else is known of them, by their ids
    reruns: Mapping[str, str]  # pages of GitHub where they can be repeated, by their ids


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A commit that may have broken something."""

    sha: str
    pushed_with: str | None = None  # the head that it came with
    line: CommitRow | None = None  # None: it came with one
    folded: FoldedCommitRow | None = None  # None: it is a line, or GitHub has not listed it yet

    @property
    def title(self) -> str | None:
        """Its title."""
        row = self.line or self.folded
        return row and row["title"]

    @property
    def author(self) -> str | None:
        """Its author."""
        row = self.line or self.folded
        return row and row["author"]

    @property
    def pr_number(self) -> int | None:
        """Its pull request; GitHub names none for commits that came with the head of a push."""
        return self.line and self.line["pr_number"]


@dataclass(frozen=True, kw_only=True)
class BrokenColumn:
    """A column that is broken."""

    place: int
    name: str
    kind: BrokenKind
    breakage: Breakage
    first_bad: CommitRow
    last_good: CommitRow | None
    newest: CommitRow  # on which it failed last
    line: str | None  # why it did
    suspects: tuple[Suspect, ...]  # the newest first, and each head before what came with it
    more: int  # suspects beyond these

    @property
    def key(self) -> str:
        """The column in the addresses of its cells."""
        return key_of_column(self.name)

    @property
    def gap(self) -> bool:
        """Whether commits between the last good and the first bad one lack a result: one of them may be the culprit."""
        return len(self.breakage.suspects) > 1

    @property
    def count(self) -> int:
        """How many suspects there are."""
        return len(self.suspects) + self.more


async def find_broken(
    tx: Transaction, branch: Branch, grid: Grid, places: Iterable[int], *, backends: Collection[str]
) -> list[BrokenColumn]:
    """Return the broken ones of some columns; only the first of them come with suspects.

    `backends` are those that merging waits for.
    """
    grid = grid.on_branch()
    breakages = {
        place: breakage for place in places if (breakage := branch_history.breakage(grid.column(place)))
    }
    shown = dict(list(breakages.items())[:BROKEN_MOST])
    lines = {place: _suspect_lines(grid, breakage) for place, breakage in shown.items()}
    heads = sorted({line["sha"] for each in lines.values() for line in each if line["folded"]})
    identifier = branch.repository["repository_id"]
    folded = await branch_commits.commits_of_heads(tx, identifier, branch.name, heads, most=SUSPECTS_MOST)
    return [
        _broken(grid, place, breakage, lines=lines.get(place, []), folded=folded, backends=backends)
        for place, breakage in breakages.items()
    ]


async def read_opened(
    tx: Transaction, settings: Settings, branch: Branch, shown_grid: grid.Grid, chosen: GridFilter
) -> OpenedCell | None:
    """Read the cell that the page's address names, None where its commit is not shown."""
    cell = grid_view.find_cell(shown_grid, chosen.cell) if chosen.cell else None
    if cell is None:
        return None
    line, column, shown = cell
    facts = await branch_reads.read_facts(tx, settings, branch, [line.commit], jobs=True)
    runs = grid.runs_of_column(facts, settings.of(TrunkSettings), column.name, shards=chosen.shards)
    more = max(0, len(runs) - RUNS_MOST)
    numbers = {row["other_id"] or str(row["job_id"]): row["job_id"] for row in facts.jobs}
    known, runs = runs, runs[:RUNS_MOST]
    on_github = f"{web_url(settings.github_api_url)}/{branch.repository['full_name']}"
    return OpenedCell(
        line=line,
        column=column,
        cell=shown,
        runs=runs,
        more=more,
        twins=any(run.twin for run in known),
        beside=await _known_of_runs(tx, branch, line, column=column, runs=runs, numbers=numbers),
        reruns=_rerun_pages(known, on_github, now=tx.now) if column.source == "actions" else {},
    )


def _kind(column: Column, backends: Collection[str]) -> BrokenKind:
    if column.group == UNSTABLE:
        return "unstable"
    return "blocking" if blocks_merging(column, backends) else "watched"


def _suspect_lines(grid: Grid, breakage: Breakage) -> list[CommitRow]:
    """Return the lines that include the culprit."""
    return [grid.lines[at].commit for at in breakage.suspects]


def _broken(
    grid: Grid,
    place: int,
    breakage: Breakage,
    *,
    lines: Sequence[CommitRow],
    folded: Mapping[str, Sequence[HeadOfCommit]],
    backends: Collection[str],
) -> BrokenColumn:
    at, newest = next(
        (at, cell) for at, cell in enumerate(grid.column(place)) if cell is not None and cell.broken
    )
    good = None if breakage.last_good is None else grid.lines[breakage.last_good].commit
    suspects = tuple(_suspects(lines, folded))[:SUSPECTS_MOST]
    return BrokenColumn(
        place=place,
        name=grid.columns[place].name,
        kind=_kind(grid.columns[place], backends),
        breakage=breakage,
        first_bad=grid.lines[breakage.first_bad].commit,
        last_good=good,
        newest=grid.lines[at].commit,
        line=newest.line,
        suspects=suspects,
        more=max(0, sum(1 + line["folded"] for line in lines) - len(suspects)),
    )


def _suspects(lines: Iterable[CommitRow], folded: Mapping[str, Sequence[HeadOfCommit]]) -> Iterator[Suspect]:
    for line in lines:
        yield Suspect(sha=line["sha"], line=line)
        for sha, row in folded.get(line["sha"], ()):
            yield Suspect(sha=sha, pushed_with=line["sha"], folded=row)


async def _known_of_runs(
    tx: Transaction,
    branch: Branch,
    line: GridLine,
    *,
    column: Column,
    runs: tuple[Run, ...],
    numbers: Mapping[str, int],
) -> dict[str, list[BlockLine]]:
    """Return what is known of upstream's jobs or a backend's runs; `numbers` are the ids of jobs."""
    if column.source == "oot":
        reported = BackendRunsSubject(
            repo=branch.repository["full_name"],
            sha=line.commit["sha"],
            run_ids=frozenset(run.id for run in runs),
        )
        return {run_id: [mark] for run_id, mark in (await mark_runs(tx, reported)).items()}
    if column.source not in {"actions", "elsewhere"}:
        return {}
    subject = CellSubject(
        repo=branch.repository["full_name"],
        repository_id=branch.repository["repository_id"],
        sha=line.commit["sha"],
        job_ids=frozenset(numbers[run.id] for run in runs if run.id in numbers),
    )
    lines: dict[int, list[BlockLine]] = {}
    for read in (logs.cell_lines, tests.cell_lines, usage.show_cell):
        for job_id, line_of_job in (await read(tx, subject)).items():
            lines.setdefault(job_id, []).append(line_of_job)
    return {run.id: lines[numbers[run.id]] for run in runs if numbers.get(run.id) in lines}


def _rerun_pages(runs: Sequence[Run], repository: str, *, now: int) -> dict[str, str]:
    """Return GitHub's pages where failed and cancelled runs of a column can be repeated, by job id.

    `repository` is the repository's address on GitHub. An attempt that was followed by another cannot be
    repeated.
    """
    newest: dict[tuple[int, int, int], int] = {}
    began: dict[int, int] = {}
    for run in runs:
        shard = (run.run_id, run.shard, run.twin)
        newest[shard] = max(newest.get(shard, 0), run.attempt)
        at = run.started_at or run.completed_at or now
        began[run.run_id] = min(began.get(run.run_id, at), at)
    return {
        run.id: f"{repository}/actions/runs/{run.run_id}/job/{run.id}"
        for run in runs
        if run.id
        and run.run_id
        and character(run.status, run.conclusion) in WORTH_IT
        and run.attempt == newest[run.run_id, run.shard, run.twin]
        and now - began[run.run_id] < DAYS * DAY
    }
