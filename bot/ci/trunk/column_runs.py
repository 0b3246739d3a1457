"""The single runs of one of upstream's jobs on many commits: for what compares runs, where the grid shows cells."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from bot.ci.trunk import commit_cells, name_patterns, same_names
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.store import rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.trunk.cells import Run
    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.tables import ColumnRow
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

RunsByCommit = dict[str, list["Run"]]


async def read_runs(
    tx: Transaction, settings: Settings, branch: Branch, shas: Sequence[str], name: str
) -> RunsByCommit:
    """Return every run of the column of this name, each shard by itself, by commit."""
    options = settings.of(TrunkSettings)
    identifier = branch.repository["repository_id"]
    columns = await rows.columns(tx, identifier)
    shown = {key: name_patterns.column_name(column, options) for key, column in columns.items()}
    wanted = {key for key, shown_name in shown.items() if shown_name == name}
    if not wanted:
        return {}
    cells = await rows.cells(tx, identifier, shas, _with_siblings(columns, wanted))
    about = same_names.describe_runs(await rows.runs(tx, identifier, shas))
    found: defaultdict[str, list[Run]] = defaultdict(list)
    for placed in same_names.place_jobs(cells, about, shards=False):
        if placed.column in wanted:
            found[placed.row["head_sha"]].append(commit_cells.make_run(placed))
    return dict(found)


async def column_names(tx: Transaction, settings: Settings, branch: Branch) -> list[str]:
    """Return the names of the columns of upstream's own jobs that the grid may show."""
    options = settings.of(TrunkSettings)
    columns = await rows.columns(tx, branch.repository["repository_id"])
    return sorted({name for one in columns.values() if (name := name_patterns.column_name(one, options))})


def _with_siblings(columns: Mapping[int, ColumnRow], wanted: set[int]) -> set[int]:
    """Return columns with those that their jobs may be in, too: whether numbers are shards, all of them tell."""
    heads = {_head(columns[key]) for key in wanted}
    return {key for key, column in columns.items() if _head(column) in heads}


def _head(column: ColumnRow) -> tuple[str, str]:
    return column["workflow"], column["job"].partition(" (")[0]
