"""Signals: one thing that is good or bad on each commit of a branch, and how it fared on the newest."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from bot.jobs import branch_history, branch_reads, grid
from bot.jobs import rows as branch_rows
from bot.jobs.settings import TrunkSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.jobs.branch_reads import Branch
    from bot.jobs.cells import Cell
    from bot.jobs.grid import Grid
    from bot.jobs.tables import CommitRow
    from bot.oot.culprits.tables import BisectRow, Signal

SEPARATOR = "::"
NAME_MOST = 500  # characters of a job's or a test's name
NEAREST = 3  # names that are suggested
BACKENDS = "backends"  # how names of backends' columns begin in the grid
LINES = 400  # newest commits that are looked at
FLAKY_WITHIN = 14 * 86_400_000  # milliseconds


class TestName(NamedTuple):
    """A test as people name it; an empty part matches anything."""

    file: str
    suite: str
    name: str


def signal_of(search: BisectRow) -> Signal:
    """Return the signal of a search."""
    return {
        "repository_id": search["repository_id"],
        "branch": search["branch"],
        "backend": search["backend"],
        "job": search["job"],
        "test": search["test"],
        "signature": search["signature"],
    }


def column_name(backend_label: str, job: str) -> str:
    """Return the name of a signal's column in the grid; the label is empty for upstream's own jobs."""
    return f"{BACKENDS} / {backend_label} / {job}" if backend_label else job


def split_test(written: str) -> TestName:
    """Split a test's name.

    >>> split_test("test/test_x.py::TestX::test_a"), split_test("TestX.test_a"), split_test("test_a")
    (TestName(file='test/test_x.py', suite='TestX', name='test_a'), TestName(file='', suite='TestX', name='test_a'), \
TestName(file='', suite='', name='test_a'))
    """
    parts = written.split(SEPARATOR, 2)
    if len(parts) == 1 and "." in written and " " not in written and not written.endswith("."):
        suite, _, name = written.rpartition(".")
        return TestName("", suite, name)
    return TestName(*["", "", *parts][-3:])


def is_test(wanted: TestName, *, file: str, suite: str, name: str) -> bool:
    """Whether a reported test is the one meant; its suite may include the module."""
    if wanted.name != name or (wanted.file and wanted.file != file):
        return False
    return not wanted.suite or suite == wanted.suite or suite.endswith(f".{wanted.suite}")


def nearest_names(word: str, known: Iterable[str]) -> list[str]:
    """Return the known names most like a word."""
    by_folded = {name.casefold(): name for name in known}
    close = get_close_matches(word.casefold()[:NAME_MOST], by_folded, n=NEAREST, cutoff=0.3)
    return [by_folded[name] for name in close] or sorted(by_folded.values())[:NEAREST]


@dataclass(frozen=True, kw_only=True)
class History:
    """The columns of one side on the newest commits of a branch."""

    label: str  # of the backend; empty: upstream's own jobs
    grid: Grid

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs, as signals have them."""
        start = len(column_name(self.label, "")) if self.label else 0
        return [column.name[start:] for column in self.grid.columns]

    def column(self, job: str) -> list[Cell | None]:
        """Return what a job did, newest first; empty where there is no such job."""
        wanted = column_name(self.label, job)
        place = next((at for at, column in enumerate(self.grid.columns) if column.name == wanted), None)
        return [] if place is None else self.grid.column(place)

    def broken_jobs(self) -> list[str]:
        """Return the jobs that are broken."""
        return [job for job in self.jobs if branch_history.breakage(self.column(job))]

    def failing_jobs(self) -> list[str]:
        """Return the jobs that fail on the newest commit they have a result on."""
        return [job for job in self.jobs if branch_history.failing_since(self.column(job))]

    def flaky_rate(self, job: str, *, since: int) -> float:
        """Return the share of commits since a time (epoch milliseconds) on which a job failed by chance."""
        column = self.column(job)
        recent = [at for at, line in enumerate(self.grid.lines) if line.commit["at"] >= since]
        results = sum(
            1
            for at in recent
            if column and (cell := column[at]) and cell.character in branch_history.EVIDENCE
        )
        flakes = branch_history.flakes(column) & set(recent)
        return len(flakes) / results if results else 0.0


async def read_history(
    tx: Transaction, settings: Settings, branch: Branch, backend: str, commits: Sequence[CommitRow]
) -> History:
    """Read how the jobs of a backend, or upstream's own for an empty name, fared on some commits."""
    options = settings.of(TrunkSettings)
    if not backend:
        built = grid.build_grid(await branch_reads.read_facts(tx, settings, branch, commits), options)
        own = tuple(column for column in built.columns if column.source == "actions")
        places = {at: place for place, at in enumerate(built.columns.index(column) for column in own)}
        lines = tuple(
            grid.GridLine(
                commit=line.commit,
                gone=line.gone,
                cells={places[at]: cell for at, cell in line.cells.items() if at in places},
            )
            for line in built.lines
        )
        return History(label="", grid=grid.Grid(columns=own, lines=lines).on_branch())
    devices = await branch_reads.device_names(tx)
    shas = [row["sha"] for row in commits]
    jobs = [
        row
        for row in await branch_rows.backend_jobs(tx, branch.names, shas)
        if row["downstream_repo"].casefold() == backend.casefold()
    ]
    label = devices.get(backend.casefold(), jobs[0]["downstream_repo"] if jobs else backend)
    facts = grid.Facts(commits=commits, backend_jobs=jobs, devices=devices)
    return History(label=label, grid=grid.build_grid(facts, options).on_branch())
