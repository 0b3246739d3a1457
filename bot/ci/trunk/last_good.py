"""The last good commit of a branch: the newest on which every selected job, and every selected backend, passed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.trunk import grid, name_patterns, reading
from bot.ci.trunk.settings import TrunkSettings
from bot.core.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.ci.trunk.grid import Column, Grid
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
    selected: frozenset[str] | None = None
    before: str | None = None
    for _ in range(SEARCHED // WINDOW):
        commits, more = await reading.newest(tx, branch, before=before, limit=WINDOW)
        facts = await reading.facts(tx, settings, branch, commits)
        found = grid.build(facts, options)
        if selected is None:
            selected = frozenset(column.name for column in found.columns if wanted(column))
            _check(selected, backends, devices)
        if (good := _newest(found, selected)) is not None:
            return LastGood(commit=good, columns=len(selected))
        if not more:
            break
        before = commits[-1]["sha"]
    detail = f"on none of the newest {SEARCHED} commits did all {len(selected or ())} selected jobs pass"
    raise Rejected(404, "no_good_commit", detail)


def _selection(jobs: str, labels: list[str]) -> Callable[[Column], bool]:
    pattern = None if jobs == BLOCKING else name_patterns.compiled(jobs)
    folded = tuple(f"backends / {label} / ".casefold() for label in labels)

    def wanted(column: Column) -> bool:
        if column.source == "oot" and column.name.casefold().startswith(folded):
            return True
        return column.blocking if pattern is None else bool(pattern.search(column.name))

    return wanted


def _check(selected: frozenset[str], backends: tuple[str, ...], devices: dict[str, str]) -> None:
    """Raise Rejected 404 when nothing is selected, or a backend has no result that could be good."""
    if not selected:
        detail = f"no selected job has a result on the newest {WINDOW} commits"
        raise Rejected(404, "no_good_commit", detail)
    for backend in backends:
        label = devices.get(backend.casefold(), backend)
        if not any(name.casefold().startswith(f"backends / {label} / ".casefold()) for name in selected):
            detail = f"{backend[:200]} has no result on the newest {WINDOW} commits"
            raise Rejected(404, "no_good_commit", detail)


def _newest(found: Grid, selected: frozenset[str]) -> CommitRow | None:
    places = [place for place, column in enumerate(found.columns) if column.name in selected]
    if len(places) < len(selected):
        return None
    for line in found.lines:
        if not line.gone and all((cell := line.cells.get(at)) is not None and cell.passed for at in places):
            return line.commit
    return None
