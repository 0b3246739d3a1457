"""What is broken on a branch, and the commits that may have broken it: for the page of the grid, and its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bot.ci.trunk import broken_columns
from bot.ci.trunk.branch_standing import blocks_merging
from bot.ci.trunk.grid import UNSTABLE, key_of_column
from bot.ci.trunk.store import folded_commits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from bot.ci.trunk.broken_columns import Breakage
    from bot.ci.trunk.grid import Column, Grid
    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.store.folded_commits import Came
    from bot.ci.trunk.tables import CommitRow, FoldedCommitRow
    from bot.db.transaction import Transaction

BROKEN_MOST = 20  # columns whose suspects are shown
SUSPECTS_MOST = 100  # of a column
Kind = Literal["blocking", "watched", "unstable"]


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
        """The pull request that it came from; of what came with a head GitHub says none."""
        return self.line and self.line["pr_number"]


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A column that is broken."""

    place: int
    name: str
    kind: Kind
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
        """Whether commits between the last good and the first bad one have no result: it may have broken on them."""
        return len(self.breakage.suspects) > 1

    @property
    def count(self) -> int:
        """How many suspects there are."""
        return len(self.suspects) + self.more


async def find_broken(
    tx: Transaction, branch: Branch, grid: Grid, places: Iterable[int], *, backends: Collection[str]
) -> list[Broken]:
    """Return the columns that are broken, of some places; beyond the first of them without suspects.

    `backends` are those that merging waits for.
    """
    grid = grid.on_branch()
    found = {place: one for place in places if (one := broken_columns.breakage(grid.column(place)))}
    shown = dict(list(found.items())[:BROKEN_MOST])
    lines = {place: _lines(grid, one) for place, one in shown.items()}
    heads = sorted({line["sha"] for each in lines.values() for line in each if line["folded"]})
    identifier = branch.repository["repository_id"]
    folded = await folded_commits.commits_of_heads(tx, identifier, branch.name, heads, most=SUSPECTS_MOST)
    return [
        _broken(grid, place, one, lines.get(place, []), folded, backends=backends)
        for place, one in found.items()
    ]


def _kind(column: Column, backends: Collection[str]) -> Kind:
    if column.group == UNSTABLE:
        return "unstable"
    return "blocking" if blocks_merging(column, backends) else "watched"


def _lines(grid: Grid, breakage: Breakage) -> list[CommitRow]:
    """Return the lines among which the culprit is."""
    return [grid.lines[at].commit for at in breakage.suspects]


def _broken(
    grid: Grid,
    place: int,
    breakage: Breakage,
    lines: Sequence[CommitRow],
    folded: Mapping[str, Sequence[Came]],
    *,
    backends: Collection[str],
) -> Broken:
    at, newest = next(
        (at, cell) for at, cell in enumerate(grid.column(place)) if cell is not None and cell.broken
    )
    good = None if breakage.last_good is None else grid.lines[breakage.last_good].commit
    suspects = tuple(_suspects(lines, folded))[:SUSPECTS_MOST]
    return Broken(
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


def _suspects(lines: Iterable[CommitRow], folded: Mapping[str, Sequence[Came]]) -> Iterator[Suspect]:
    for line in lines:
        yield Suspect(sha=line["sha"], line=line)
        for sha, row in folded.get(line["sha"], ()):
            yield Suspect(sha=sha, pushed_with=line["sha"], folded=row)
