"""An open cell of the grid: all runs behind it, what else is known of them, and where they can be run again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.trunk import grid, reading
from bot.ci.trunk.cells import CANCELLED, FAILED, character
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.views import hud_view
from bot.core.links import web_url
from bot.web import blocks
from bot.web.subjects import BackendRunsSubject, CellSubject

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.ci.trunk.cells import Cell, Run
    from bot.ci.trunk.grid import Column, Line
    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.views.hud_filter import Filter
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.web.blocks import BlockLine

RUNS_MOST = 100
DAY = 86_400_000
DAYS = 30  # after its first attempt GitHub runs nothing again
WORTH_IT: Collection[str] = FAILED | {CANCELLED}


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An open cell."""

    line: Line
    column: Column
    cell: Cell
    runs: tuple[Run, ...]
    more: int
    twins: bool  # whether there are several jobs of its name
    beside: Mapping[str, Sequence[BlockLine]]  # what else is known of them, by their ids
    reruns: Mapping[str, str]  # pages of GitHub where they can be repeated, by their ids


async def read_opened(
    tx: Transaction, context: Context, branch: Branch, found: grid.Grid, chosen: Filter
) -> Opened | None:
    """Return the cell that the page's address names, None where it is not among the commits shown."""
    settings = context.settings
    cell = hud_view.find_cell(found, chosen.cell) if chosen.cell else None
    if cell is None:
        return None
    line, column, shown = cell
    facts = await reading.read_facts(tx, settings, branch, [line.commit], jobs=True)
    runs = grid.runs_of_column(facts, settings.of(TrunkSettings), column.name, shards=chosen.shards)
    more = max(0, len(runs) - RUNS_MOST)
    numbers = {row["other_id"] or str(row["job_id"]): row["job_id"] for row in facts.jobs}
    known, runs = runs, runs[:RUNS_MOST]
    on_github = f"{web_url(settings.github_api_url)}/{branch.repository['full_name']}"
    return Opened(
        line=line,
        column=column,
        cell=shown,
        runs=runs,
        more=more,
        twins=any(run.twin for run in known),
        beside=await _beside(tx, context, branch, line, column=column, runs=runs, numbers=numbers),
        reruns=_rerun_pages(known, on_github, now=tx.now) if column.source == "actions" else {},
    )


async def _beside(
    tx: Transaction,
    context: Context,
    branch: Branch,
    line: Line,
    *,
    column: Column,
    runs: tuple[Run, ...],
    numbers: Mapping[str, int],
) -> dict[str, list[BlockLine]]:
    """Return what other features know of upstream's jobs, or of a backend's runs; `numbers` are those of the jobs."""
    if column.source == "oot":
        reported = BackendRunsSubject(
            repo=branch.repository["full_name"],
            sha=line.commit["sha"],
            run_ids=frozenset(run.id for run in runs),
        )
        return await blocks.backend_run_lines(context.features, tx, reported)
    if column.source not in {"actions", "elsewhere"}:
        return {}
    subject = CellSubject(
        repo=branch.repository["full_name"],
        repository_id=branch.repository["repository_id"],
        sha=line.commit["sha"],
        job_ids=frozenset(numbers[run.id] for run in runs if run.id in numbers),
    )
    found = await blocks.cell_lines(context.features, tx, subject)
    return {run.id: found[numbers[run.id]] for run in runs if numbers.get(run.id) in found}


def _rerun_pages(runs: Sequence[Run], repository: str, *, now: int) -> dict[str, str]:
    """Return the pages on GitHub where failed and cancelled runs of a column can be repeated, by the jobs' ids.

    `repository` is the address of the repository on GitHub. An attempt that was followed by another one cannot be
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
