"""The cells of a commit, made of the runs of its jobs: for the grid, and to be stored until one of its jobs changes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bot.ci.trunk import cells, same_names
from bot.ci.trunk.cells import CONCLUSIONS, STATES, Cell, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bot.ci.trunk.same_names import Placed, RunFacts
    from bot.ci.trunk.store.rows import RunRow
    from bot.ci.trunk.tables import CellRow, Failure

ByColumn = dict[int, Cell]


class Outline(NamedTuple):
    """What there is to know of a commit's cells without reading them: columns, each a bit."""

    good: int  # that passed, or failed as is allowed
    present: int  # that have a cell


_SUCCESS = CONCLUSIONS.index("success")
_WORDS = [[cells.character(state, conclusion) for conclusion in ("", *CONCLUSIONS[1:])] for state in STATES]
_DECODER = msgspec.msgpack.Decoder(ByColumn)
_OUTLINE_DECODER = msgspec.msgpack.Decoder(tuple[int, int, bytes, bytes])


def make_cells(
    rows: Sequence[CellRow],
    about: RunFacts,
    joined: Mapping[int, int] | None = None,
    *,
    shards: bool = False,
) -> dict[str, ByColumn]:
    """Return the cells of some commits, by SHA and column.

    `joined` names the column that stands for another one, where an alias joins them; with `shards` every shard has a
    column.
    """
    found: defaultdict[str, defaultdict[int, list[Placed]]] = defaultdict(lambda: defaultdict(list))
    for placed in same_names.place_jobs(rows, about, shards=shards):
        column = placed.column
        found[placed.row["head_sha"]][joined.get(column, column) if joined else column].append(placed)
    return {
        sha: {column: _cell(of_column) for column, of_column in sorted(by_column.items())}
        for sha, by_column in found.items()
    }


def make_run(placed: Placed, of_workflow: RunRow | None = None) -> Run:
    """Return a stored run as the rule of cells takes it; of its workflow's run it has what it was started by."""
    row = placed.row
    return Run(
        id=row["other_id"] or str(row["job_id"]),
        status=STATES[row["state"]],
        conclusion=CONCLUSIONS[row["conclusion"]],
        attempt=row["attempt"],
        event=(of_workflow["event"] if of_workflow else None) or "",
        actor=(of_workflow["triggering_actor_login"] if of_workflow else None) or "",
        shard=row["shard"],
        shards=row["shards"],
        twin=placed.twin,
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        failure=_failure(row),
        url=row["url"],
        run_id=0 if row["other_id"] else row["run_id"],
    )


def _failure(row: CellRow) -> Failure | None:
    """Return why a run failed, None where nothing of it is known, as of nearly all."""
    if row["failure_kind"] is None and row["line"] is None and row["tests_failed"] is None:
        return None
    return {
        "signature": row["signature"],
        "line": row["line"],
        "tests_failed": row["tests_failed"],
        "failed_tests": row["failed_tests"],
        "failure_kind": row["failure_kind"],
    }


def to_bytes(by_column: ByColumn) -> bytes:
    """Return a commit's cells as they are stored."""
    return msgspec.msgpack.encode(by_column)


def from_bytes(stored: bytes) -> ByColumn:
    """Return a commit's cells from what is stored."""
    return _DECODER.decode(stored)


def outline(by_column: ByColumn) -> Outline:
    """Return the outline of a commit's cells."""
    good = sum(1 << column for column, cell in by_column.items() if cell.good)
    return Outline(good=good, present=sum(1 << column for column in by_column))


def outline_to_bytes(by_column: ByColumn, mark: int) -> bytes:
    """Return the outline of a commit's cells as it is stored, with the mark of the commit that it holds for."""
    good, present = outline(by_column)
    first = max(0, (present & -present).bit_length() - 1)
    length = (max(0, present.bit_length() - first) + 7) // 8
    bits = [(each >> first).to_bytes(length, "little") for each in (good, present)]
    return msgspec.msgpack.encode((mark, first, *bits))


def outline_from_bytes(stored: bytes, mark: int) -> Outline | None:
    """Return an outline from what is stored; None where a job has changed since."""
    held_for, first, *bits = _OUTLINE_DECODER.decode(stored)
    if held_for != mark:
        return None
    good, present = (int.from_bytes(each, "little") << first for each in bits)
    return Outline(good=good, present=present)


def columns_of(bits: int) -> Iterator[int]:
    """Yield the columns that are set in the bits of an outline."""
    while bits:
        least = bits & -bits
        yield least.bit_length() - 1
        bits ^= least


def _cell(runs: Sequence[Placed]) -> Cell:
    """Return a cell; of a single run, or of successes only, without a detour, since nearly all are."""
    newest = runs[0].row
    for _, row, twin in runs if len(runs) > 1 else ():
        if row["conclusion"] != _SUCCESS or row["shard"] or twin:
            return cells.cell(map(make_run, runs))
        newest = row if row["job_id"] > newest["job_id"] else newest
    return Cell(
        character=_WORDS[newest["state"]][newest["conclusion"]],
        job=newest["other_id"] or newest["job_id"],
        completed_at=newest["completed_at"],
        failure=_failure(newest),
        kind=newest["failure_kind"],
    )
