"""Which jobs passed on which commits? Rows of jobs as a grid: commits down, jobs across, one cell for each."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot.domain.tally import outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Row = dict[str, Any]
Place = tuple[str, int | None, str]  # upstream, pull request, commit

FOLD = 12  # columns beyond which the others are folded into one
TONES = {
    "failure": "bad", "timed_out": "bad", "running": "wait", "success": "good", "cancelled": "idle", "skipped": "idle",
    "neutral": "idle",
}  # fmt: skip
_WORST_FIRST = ("bad", "wait", "good", "idle")
_SHARD = re.compile(r"(?<![\w.])(\d{1,3})(\s*(?:,|/|of)\s*)(\d{1,3})(?![\w.])")


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """One job by workflow and name; the shards of one job are one column."""

    workflow: str
    name: str  # with shards grouped: their number in place of each
    shards: int = 0  # how many different ones were seen; 0: not a sharded job


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The jobs of one column on one commit: the newest attempt of each."""

    key: str
    tone: str
    said: str  # for people, as in "2 of 5 failed"
    rows: tuple[Row, ...]  # newest attempt of each shard
    earlier: tuple[Row, ...] = ()

    @property
    def seconds(self) -> float | None:
        """How long the longest of them took."""
        known = [row["execution_time"] for row in self.rows if row["execution_time"] is not None]
        return max(known, default=None)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One commit, newest first."""

    place: Place
    at: int
    jobs: int
    cells: tuple[Cell | None, ...]  # in the order of the columns
    folded: tuple[Cell, ...] = ()  # of the columns that are not shown


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The grid."""

    columns: tuple[Column, ...]
    folded: tuple[Column, ...]
    lines: tuple[Line, ...]
    more: bool = False  # there are older commits

    def find(self, key: str) -> tuple[Line, Cell] | None:
        """Return the cell somebody opened."""
        for line in self.lines:
            for cell in (*line.cells, *line.folded):
                if cell is not None and cell.key == key:
                    return line, cell
        return None


@dataclass(kw_only=True)
class _Shown:
    """What is gathered of one commit."""

    at: int = 0
    jobs: dict[tuple[str, str], list[Row]] = field(default_factory=lambda: defaultdict(list))


def build(rows: Iterable[Row], *, most: int, fold: int | None = FOLD) -> Matrix:
    """Return the newest `most` commits of rows, which come newest first; `fold` None shows every column."""
    shown: dict[Place, _Shown] = {}
    more = False
    for row in rows:
        place = (row["upstream_repo"], row["pr_number"], row["head_sha"] or "")
        if place not in shown and len(shown) >= most:
            more = True
            continue
        line = shown.setdefault(place, _Shown(at=row["received_at"]))
        line.jobs[row["workflow_name"], row["job_name"]].append(row)
    groups = _groups({job for line in shown.values() for job in line.jobs})
    columns = sorted(set(groups.values()), key=lambda column: (column.workflow, column.name))
    keys = {column: _digest(column.workflow, column.name) for column in columns}
    cells = {place: _cells(place, line, groups, keys) for place, line in shown.items()}
    visible = columns if fold is None or len(columns) <= fold else _worst(columns, list(cells.values()), fold)
    folded = tuple(column for column in columns if column not in visible)
    return Matrix(
        columns=tuple(visible),
        folded=folded,
        lines=tuple(
            Line(
                place=place,
                at=line.at,
                jobs=sum(len(cell.rows) for cell in cells[place].values()),
                cells=tuple(cells[place].get(column) for column in visible),
                folded=tuple(cells[place][column] for column in folded if column in cells[place]),
            )
            for place, line in shown.items()
        ),
        more=more,
    )


def worst(cells: Sequence[Cell]) -> str:
    """Return the tone of several cells together."""
    tones = {cell.tone for cell in cells}
    return next((tone for tone in _WORST_FIRST if tone in tones), "idle")


def _groups(jobs: set[tuple[str, str]]) -> dict[tuple[str, str], Column]:
    """Return the column of each job: shards, told by numbers such as `2, 5` or `2/5`, share one."""
    stems: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for workflow, name in jobs:
        stems[workflow, _stem(name)].append((workflow, name))
    groups: dict[tuple[str, str], Column] = {}
    for (workflow, stem), members in stems.items():
        shards = len(members) if len(members) > 1 else 0
        column = Column(workflow=workflow, name=stem if shards else members[0][1], shards=shards)
        groups |= dict.fromkeys(members, column)
    return groups


def _stem(name: str) -> str:
    def hide(found: re.Match[str]) -> str:
        number, between, count = found.groups()
        return f"1–{count}" if 1 <= int(number) <= int(count) else f"{number}{between}{count}"  # noqa: RUF001

    return _SHARD.sub(hide, name, count=1)


def _cells(
    place: Place, line: _Shown, groups: dict[tuple[str, str], Column], keys: dict[Column, str]
) -> dict[Column, Cell]:
    parts: dict[Column, list[list[Row]]] = defaultdict(list)
    for job, rows in line.jobs.items():
        parts[groups[job]].append(rows)
    start = _digest(*place)
    return {column: _cell(start + keys[column], members) for column, members in parts.items()}


def _cell(key: str, members: list[list[Row]]) -> Cell:
    """Return one cell; of each job the newest attempt of the newest run counts."""
    newest, earlier = [], []
    for rows in members:
        first, *others = sorted(rows, key=_newest_first) if len(rows) > 1 else rows
        newest.append(first)
        earlier += others
    newest.sort(key=lambda row: row["job_name"])
    outcomes = [outcome(row) for row in newest]
    tones = [TONES[what] for what in outcomes]
    tone = next(tone for tone in _WORST_FIRST if tone in tones)
    said = outcomes[tones.index(tone)].replace("_", " ")
    if len(newest) > 1:
        said = f"{tones.count(tone)} of {len(newest)} {said}"
    return Cell(
        key=key,
        tone=tone,
        said={"success": "passed", "failure": "failed"}.get(said, said),
        rows=tuple(newest),
        earlier=tuple(sorted(earlier, key=_newest_first)),
    )


def _newest_first(row: Row) -> tuple[int, int, str]:
    return -row["run_received_at"], -row["run_attempt"], row["job_key"]


def _digest(*words: object) -> str:
    """Return what tells a commit from others, or a column: both together are the key of a cell."""
    said = "\n".join(map(str, words))
    digest = hashlib.sha256(said.encode("utf-8", "replace")).digest()
    return base64.urlsafe_b64encode(digest)[:6].decode()


def _worst(columns: list[Column], lines: list[dict[Column, Cell]], most: int) -> list[Column]:
    """Return the columns with the most red cells, in their order."""
    reds = {
        column: sum(column in cells and cells[column].tone == "bad" for cells in lines) for column in columns
    }
    chosen = sorted(columns, key=lambda column: -reds[column])[:most]
    return [column for column in columns if column in chosen]
