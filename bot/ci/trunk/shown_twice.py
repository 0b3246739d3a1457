"""Jobs that GitHub shows as a commit status, too: one column, not two.

A status of a job that has a check run of its name, or that its own CI tells of, says nothing new. Where a status stands
for one column, it fills the commits on which that has nothing yet; where it stands for several, as that of a whole
build does, it is shown on commits on which none of them is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.trunk.store.column_ids import STATUS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.ci.trunk.commit_cells import ByColumn
    from bot.ci.trunk.tables import ColumnRow


@dataclass(frozen=True, kw_only=True)
class Statuses:
    """Columns of commit statuses, by their number: which other ones they stand for."""

    all: frozenset[int]
    alone: Mapping[int, int]  # the one column that a status stands for
    several: Mapping[int, frozenset[int]]


NO_STATUSES = Statuses(all=frozenset(), alone={}, several={})


def find_statuses(columns: Mapping[int, ColumnRow]) -> Statuses:
    """Return what the columns of commit statuses stand for."""
    statuses = {key: row for key, row in columns.items() if row["source"] == STATUS}
    if not statuses:
        return NO_STATUSES
    others = {key: row["shown_as"] for key, row in columns.items() if row["shown_as"] and key not in statuses}
    alone: dict[int, int] = {}
    several: dict[int, frozenset[int]] = {}
    for key, row in statuses.items():
        found = _stands_for(row["shown_as"] or "", others)
        same = [other for other in found if others[other] == row["shown_as"]]
        if len(found) == 1 and same:
            alone[key] = same[0]
        elif found:
            several[key] = frozenset(found)
    return Statuses(all=frozenset(statuses), alone=alone, several=several)


def contexts_of(columns: Iterable[ColumnRow]) -> set[str]:
    """Return the names of commit statuses, and their beginnings up to each slash: what columns are shown as."""
    found: set[str] = set()
    for row in columns:
        if row["source"] == STATUS and (context := row["shown_as"]):
            parts = context.split("/")
            found.update("/".join(parts[:length]) for length in range(1, len(parts) + 1))
    return found


def _stands_for(context: str, others: Mapping[int, str | None]) -> list[int]:
    return sorted(key for key, shown in others.items() if context == shown or context.startswith(f"{shown}/"))


def without_statuses(found: ByColumn, statuses: Statuses) -> ByColumn:
    """Return a commit's cells without those of commit statuses."""
    if not statuses.all:
        return found
    return {key: cell for key, cell in found.items() if key not in statuses.all}


def only_statuses(found: ByColumn, statuses: Statuses) -> ByColumn:
    """Return those of a commit's cells that only commit statuses tell of."""
    return {key: cell for key, cell in without_covered(found, statuses).items() if key in statuses.all}


def without_covered(found: ByColumn, statuses: Statuses) -> ByColumn:
    """Return a commit's cells without those of statuses that stand for columns with a cell there."""
    nothing: frozenset[int] = frozenset()
    return {
        key: cell
        for key, cell in found.items()
        if statuses.alone.get(key) not in found
        and found.keys().isdisjoint(statuses.several.get(key, nothing))
    }
