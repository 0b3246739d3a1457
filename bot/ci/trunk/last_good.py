"""The last good commit of a branch: the newest on which every selected job, and every selected backend, passed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.trunk import grid, name_patterns, reading, rows
from bot.ci.trunk.settings import TrunkSettings
from bot.core.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from bot.ci.trunk.grid import Column, Facts, Grid
    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.rows import CommitRow
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

BLOCKING = "blocking"
WINDOW = 50  # newest commits: columns without a cell there are not asked for
SEARCHED = 400  # commits
BACKENDS_MOST = 20


@dataclass(frozen=True, kw_only=True)
class LastGood:
    """A commit, and how many columns passed on it."""

    commit: CommitRow
    columns: int


async def find(
    tx: Transaction, settings: Settings, branch: Branch, *, jobs: str, backends: tuple[str, ...]
) -> LastGood:
    """Return the last good commit. `jobs` is a pattern (RE2) over names, or `blocking`.

    A commit on which one of the selected columns has no cell is not good: absence of data makes nothing green.
    Raises Rejected 404 when there is none among the newest, or nothing is selected.
    """
    options = settings.of(TrunkSettings)
    devices = await reading.devices(tx)
    wanted = _selection(jobs, [devices.get(name.casefold(), name) for name in backends])
    commits, _ = await reading.newest(tx, branch, before=None, limit=SEARCHED)
    facts = await reading.facts(tx, settings, branch, commits[:WINDOW])
    found = grid.build(facts, options)
    selected = {column.name: column for column in found.columns if wanted(column)}
    _check(selected.keys(), backends, devices)
    good = _newest(found, selected.keys())
    for commit in (
        await _candidates(tx, branch, commits[WINDOW:], _ids(facts, selected, options)) if not good else ()
    ):
        one = grid.build(await reading.facts(tx, settings, branch, [commit]), options)
        if good := _newest(one, selected.keys()):
            break
    if good is None:
        detail = f"on none of the newest {SEARCHED} commits did all {len(selected)} selected jobs pass"
        raise Rejected(404, "no_good_commit", detail)
    return LastGood(commit=good, columns=len(selected))


async def _candidates(
    tx: Transaction, branch: Branch, commits: Sequence[CommitRow], ids: Collection[frozenset[int]]
) -> list[CommitRow]:
    """Return the commits on which as many jobs passed as are needed: few have to be looked at closely.

    `ids` holds those of each selected job's columns; jobs that share one are counted once.
    """
    counted: set[int] = set()
    needed = 0
    for each in ids:
        needed += counted.isdisjoint(each)
        counted |= each
    if not needed or not commits:
        return list(commits)
    identifier = branch.repository["repository_id"]
    passed = await rows.passed_columns(tx, identifier, [row["sha"] for row in commits], counted)
    return [row for row in commits if passed.get(row["sha"], 0) >= needed]


def _ids(facts: Facts, selected: Collection[str], settings: TrunkSettings) -> list[frozenset[int]]:
    """Return the columns of each selected job of upstream, as the database has them."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    shown = {key: grid.column_name(column, settings) for key, column in facts.columns.items()}
    for row in facts.cells:
        for name in (shown[row.column_id], shown.get(row.numbered_column_id or 0)):
            if name in selected and name is not None:
                found[name].add(row.column_id)
    return [frozenset(each) for _, each in sorted(found.items())]


def _selection(jobs: str, labels: list[str]) -> Callable[[Column], bool]:
    pattern = None if jobs == BLOCKING else name_patterns.compiled(jobs)
    folded = tuple(f"backends / {label} / ".casefold() for label in labels)

    def wanted(column: Column) -> bool:
        if column.source == "oot" and column.name.casefold().startswith(folded):
            return True
        return column.blocking if pattern is None else bool(pattern.search(column.name))

    return wanted


def _check(selected: Collection[str], backends: tuple[str, ...], devices: dict[str, str]) -> None:
    """Raise Rejected 404 when nothing is selected, or a backend has no result that could be good."""
    if not selected:
        detail = f"no selected job has a result on the newest {WINDOW} commits"
        raise Rejected(404, "no_good_commit", detail)
    for backend in backends:
        label = devices.get(backend.casefold(), backend)
        if not any(name.casefold().startswith(f"backends / {label} / ".casefold()) for name in selected):
            detail = f"{backend[:200]} has no result on the newest {WINDOW} commits"
            raise Rejected(404, "no_good_commit", detail)


def _newest(found: Grid, selected: Collection[str]) -> CommitRow | None:
    places = [place for place, column in enumerate(found.columns) if column.name in selected]
    if len(places) < len(selected):
        return None
    for line in found.lines:
        if not line.gone and all((cell := line.cells.get(at)) is not None and cell.passed for at in places):
            return line.commit
    return None
