"""How a backend's or upstream's jobs fared on the newest commits of a branch: a grid of these columns alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.trunk import broken_columns, grid, reading
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.store import rows as trunk_rows
from bot.oot.culprits.signals import column_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk.cells import Cell
    from bot.ci.trunk.grid import Grid
    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.tables import CommitRow
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

LINES = 400  # newest commits that are looked at
FLAKY_WITHIN = 14 * 86_400_000  # milliseconds


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
        place = next((at for at, one in enumerate(self.grid.columns) if one.name == wanted), None)
        return [] if place is None else self.grid.column(place)

    def broken_jobs(self) -> list[str]:
        """Return the jobs that are broken."""
        return [job for job in self.jobs if broken_columns.breakage(self.column(job))]

    def failing_jobs(self) -> list[str]:
        """Return the jobs that fail on the newest commit they have a result on."""
        return [job for job in self.jobs if broken_columns.failing_since(self.column(job))]

    def flaky_rate(self, job: str, *, since: int) -> float:
        """Return how often a job failed by chance on commits since a time (epoch milliseconds)."""
        column = self.column(job)
        recent = [at for at, line in enumerate(self.grid.lines) if line.commit["at"] >= since]
        results = sum(
            1
            for at in recent
            if column and (cell := column[at]) and cell.character in broken_columns.EVIDENCE
        )
        flakes = broken_columns.flakes(column) & set(recent)
        return len(flakes) / results if results else 0.0


async def read_history(
    tx: Transaction, settings: Settings, branch: Branch, backend: str, commits: Sequence[CommitRow]
) -> History:
    """Return how the jobs of a backend, or with an empty name upstream's own, fared on some commits."""
    options = settings.of(TrunkSettings)
    if not backend:
        found = grid.build_grid(await reading.read_facts(tx, settings, branch, commits), options)
        own = tuple(column for column in found.columns if column.source == "actions")
        places = {at: place for place, at in enumerate(found.columns.index(one) for one in own)}
        lines = tuple(
            grid.Line(
                commit=line.commit,
                gone=line.gone,
                cells={places[at]: cell for at, cell in line.cells.items() if at in places},
            )
            for line in found.lines
        )
        return History(label="", grid=grid.Grid(columns=own, lines=lines).on_branch())
    devices = await reading.devices(tx)
    shas = [row["sha"] for row in commits]
    jobs = [
        row
        for row in await trunk_rows.backend_jobs(tx, branch.names, shas)
        if row["downstream_repo"].casefold() == backend.casefold()
    ]
    label = devices.get(backend.casefold(), jobs[0]["downstream_repo"] if jobs else backend)
    facts = grid.Facts(commits=commits, backend_jobs=jobs, devices=devices)
    return History(label=label, grid=grid.build_grid(facts, options).on_branch())
