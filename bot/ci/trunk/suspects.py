"""What is broken on a branch, and the commits that may have broken it: for the page of the grid, and its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.ci.trunk import folded_commits, hud_view, trouble

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bot.ci.trunk.folded_commits import FoldedRow
    from bot.ci.trunk.grid import Grid
    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.rows import CommitRow
    from bot.ci.trunk.trouble import Breakage
    from bot.db.transaction import Transaction

BROKEN_MOST = 20  # columns whose suspects are told
SUSPECTS_MOST = 100  # of a column


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A commit that may have broken something."""

    sha: str
    title: str | None  # None: GitHub has not listed it yet
    author: str | None
    pr_number: int | None
    pushed_with: str | None  # the head that it came with


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A column that is broken."""

    place: int
    name: str
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
        return hud_view.key_of(self.name)

    @property
    def gap(self) -> bool:
        """Whether commits between the last good and the first bad one have no result: it may have broken on them."""
        return len(self.breakage.suspects) > 1

    @property
    def count(self) -> int:
        """How many suspects there are."""
        return len(self.suspects) + self.more


async def of(tx: Transaction, branch: Branch, grid: Grid, places: Iterable[int]) -> list[Broken]:
    """Return the columns that are broken, of some places; beyond the first of them without suspects."""
    grid = grid.on_branch()
    found = {place: one for place in places if (one := trouble.breakage(grid.column(place)))}
    told = dict(list(found.items())[:BROKEN_MOST])
    lines = {place: _lines(grid, one) for place, one in told.items()}
    heads = sorted({line["sha"] for each in lines.values() for line in each if line["folded"]})
    identifier = branch.repository["repository_id"]
    folded = await folded_commits.of_heads(tx, identifier, branch.name, heads, most=SUSPECTS_MOST)
    return [_broken(grid, place, one, lines.get(place, []), folded) for place, one in found.items()]


def _lines(grid: Grid, breakage: Breakage) -> list[CommitRow]:
    """Return the lines among which the culprit is."""
    return [grid.lines[at].commit for at in breakage.suspects]


def _broken(
    grid: Grid,
    place: int,
    breakage: Breakage,
    lines: Sequence[CommitRow],
    folded: Mapping[str, Sequence[FoldedRow]],
) -> Broken:
    at, newest = next(
        (at, cell) for at, cell in enumerate(grid.column(place)) if cell is not None and cell.broken
    )
    good = None if breakage.last_good is None else grid.lines[breakage.last_good].commit
    suspects = tuple(_suspects(lines, folded))[:SUSPECTS_MOST]
    return Broken(
        place=place,
        name=grid.columns[place].name,
        breakage=breakage,
        first_bad=grid.lines[breakage.first_bad].commit,
        last_good=good,
        newest=grid.lines[at].commit,
        line=newest.line,
        suspects=suspects,
        more=max(0, sum(1 + line["folded"] for line in lines) - len(suspects)),
    )


def _suspects(lines: Iterable[CommitRow], folded: Mapping[str, Sequence[FoldedRow]]) -> Iterator[Suspect]:
    for line in lines:
        yield Suspect(
            sha=line["sha"],
            title=line["title"],
            author=line["author"],
            pr_number=line["pr_number"],
            pushed_with=None,
        )
        for each in folded.get(line["sha"], ()):
            yield Suspect(
                sha=each["sha"],
                title=each["title"],
                author=each["author"],
                pr_number=None,
                pushed_with=line["sha"],
            )
