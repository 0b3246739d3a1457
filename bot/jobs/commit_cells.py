"""The cells of a commit: which of its jobs are one, the cells made of them, and those stored until a job changes."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import sqlalchemy as sa

from bot.jobs import cells, rows
from bot.jobs.cells import CONCLUSIONS, STATES, Cell, Run
from bot.jobs.tables import ci_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bot.db.store import Store
    from bot.db.transaction import Transaction
    from bot.jobs.rows import RunRow
    from bot.jobs.tables import CellRow, Failure

# events whose runs have nothing to do with the commit they carry
FOREIGN_EVENTS = frozenset({"workflow_run", "issue_comment", "repository_dispatch"})
GOOD_ENDS = frozenset({"success", "neutral", "skipped"})  # of a run
COMPLETED, WAITING = STATES.index("completed"), STATES.index("waiting")
_SUCCESS, _ALLOWED, _SKIPPED, _CANCELLED = map(
    CONCLUSIONS.index, ("success", "allowed", "skipped", "cancelled")
)
_FAILED = frozenset(CONCLUSIONS.index(word) for word in ("failure", "timed_out"))
_JUDGED_BY_RUN = _FAILED | {0}
ByColumn = dict[int, Cell]
_SUCCESS_CODE = CONCLUSIONS.index("success")
_WORDS = [[cells.character(state, conclusion) for conclusion in ("", *CONCLUSIONS[1:])] for state in STATES]
_DECODER = msgspec.msgpack.Decoder(ByColumn)
_OUTLINE_DECODER = msgspec.msgpack.Decoder(tuple[int, int, bytes, bytes])
STORED = ci_commit.c
COMMITS_AT_ONCE = 10  # commits: their runs are looked at without a pause


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What workflow runs say about their jobs, by run id."""

    foreign: frozenset[int]  # those that say nothing about their commit
    workflows: Mapping[int, int]
    newest: Mapping[int, int]  # attempt
    ended: Mapping[tuple[int, int], str]  # conclusions of attempts that are over


class PlacedJob(NamedTuple):
    """A run of a job with its column, and its number among the jobs of its name."""

    column: int
    row: CellRow
    twin: int


class Outline(NamedTuple):
    """What is known of a commit's cells without reading them: a bit for each column."""

    good: int  # that passed, or failed as is allowed
    present: int  # that have a cell


def describe_runs(runs: Iterable[RunRow]) -> RunFacts:
    """Return what workflow runs say about their jobs."""
    newest: dict[int, int] = {}
    workflows: dict[int, int] = {}
    ended: dict[tuple[int, int], str] = {}
    foreign = set()
    for run in runs:
        newest[run["id"]] = max(newest.get(run["id"], 0), run["run_attempt"])
        if run["event"] in FOREIGN_EVENTS:
            foreign.add(run["id"])
        if run["workflow_id"] is not None:
            workflows[run["id"]] = run["workflow_id"]
        if run["status"] == "completed":
            ended[run["id"], run["run_attempt"]] = run["conclusion"] or ""
    return RunFacts(foreign=frozenset(foreign), workflows=workflows, newest=newest, ended=ended)


def place_jobs(rows: Sequence[CellRow], about: RunFacts, *, shards: bool) -> Iterator[PlacedJob]:
    """Yield each run that tests its commit, with its place; with `shards`, each shard has a column of its own.

    A pair of numbers is a shard only beside another one with the same count.
    """
    sharded: defaultdict[tuple[str, int, int], set[int]] = defaultdict(set)
    for row in rows:
        if row["shards"]:
            sharded[row["head_sha"], row["column_id"], row["shards"]].add(row["shard"])
    alike: defaultdict[tuple[str, int, int], list[CellRow]] = defaultdict(list)
    for row in rows:
        if row["run_id"] in about.foreign:
            continue
        column, count = row["column_id"], row["shards"]
        told = _with_run(row, about) if row["conclusion"] in _JUDGED_BY_RUN else row
        if count and (shards or len(sharded[row["head_sha"], column, count]) < 2):
            column, told = row["numbered_column_id"] or column, {**told, "shard": 0, "shards": 0}
        alike[row["head_sha"], column, told["shard"]].append(told)
    for (_, column, _), jobs in alike.items():
        if len(jobs) == 1:  # nearly always
            yield PlacedJob(column, jobs[0], 0)
            continue
        twins = _number_twins(jobs, about.workflows)
        for row in jobs:
            yield PlacedJob(column, row, twins.get(row["job_id"], 0))


def is_copy(row: CellRow, before: CellRow) -> bool:
    """Whether a job is a copy of an earlier one: GitHub lists what had passed again, with its times."""
    return row["completed_at"] is not None and all(
        row[name] == before[name] for name in ("started_at", "completed_at", "conclusion")
    )


def make_cells(
    rows: Sequence[CellRow],
    about: RunFacts,
    joined: Mapping[int, int] | None = None,
    *,
    shards: bool = False,
) -> dict[str, ByColumn]:
    """Return the cells of some commits, by SHA and column.

    `joined` maps a column to the one that stands for it, where an alias joins them; with `shards` every shard has a
    column.
    """
    placed_jobs: defaultdict[str, defaultdict[int, list[PlacedJob]]] = defaultdict(lambda: defaultdict(list))
    for placed in place_jobs(rows, about, shards=shards):
        column = placed.column
        placed_jobs[placed.row["head_sha"]][joined.get(column, column) if joined else column].append(placed)
    return {
        sha: {column: _decoded_cell(of_column) for column, of_column in sorted(by_column.items())}
        for sha, by_column in placed_jobs.items()
    }


def make_run(placed: PlacedJob, of_workflow: RunRow | None = None) -> Run:
    """Return a run of a cell from a stored job; its workflow's run says what started it."""
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


def to_bytes(by_column: ByColumn) -> bytes:
    """Encode a commit's cells."""
    return msgspec.msgpack.encode(by_column)


def from_bytes(stored: bytes) -> ByColumn:
    """Decode a commit's cells."""
    return _DECODER.decode(stored)


def outline(by_column: ByColumn) -> Outline:
    """Return the outline of a commit's cells."""
    good = sum(1 << column for column, cell in by_column.items() if cell.good)
    return Outline(good=good, present=sum(1 << column for column in by_column))


def outline_to_bytes(by_column: ByColumn, mark: int) -> bytes:
    """Encode the outline of a commit's cells, with the mark of the commit that it is valid for."""
    good, present = outline(by_column)
    first = max(0, (present & -present).bit_length() - 1)
    length = (max(0, present.bit_length() - first) + 7) // 8
    bits = [(each >> first).to_bytes(length, "little") for each in (good, present)]
    return msgspec.msgpack.encode((mark, first, *bits))


def outline_from_bytes(stored: bytes, mark: int) -> Outline | None:
    """Decode an outline; None where a job has changed since."""
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


async def forget_cells(tx: Transaction, commits: Iterable[tuple[int, str]]) -> None:
    """Remove the stored cells of some commits (repository and SHA), and give each a new random mark."""
    stale = [
        {"repository_id": repository, "head_sha": sha, "mark": secrets.randbits(62), "cells": None}
        for repository, sha in sorted(set(commits))
    ]
    if stale:
        await tx.upsert(ci_commit, stale, replaced=("mark", "cells"))


async def store_missing_cells(store: Store, repository_id: int, shas: Sequence[str]) -> None:
    """Store the cells of the commits that lack them, unless something changes meanwhile."""
    async with store.read() as tx:
        known = await rows.stored_cells(tx, repository_id, shas)
    lacking = sorted(sha for sha, row in known.items() if row.cells is None)
    for start in range(0, len(lacking), COMMITS_AT_ONCE):
        await _make_stored_cells(store, repository_id, lacking[start : start + COMMITS_AT_ONCE])


def _with_run(row: CellRow, about: RunFacts) -> CellRow:
    """Return a job with the conclusion that its run gives it.

    A failure in a run that succeeded is allowed. A job that GitHub leaves unfinished ended with its run.
    """
    run, attempt = row["run_id"], row["attempt"]
    if row["conclusion"] in _FAILED and about.ended.get((run, attempt)) == "success":
        return {**row, "conclusion": _ALLOWED}
    if row["conclusion"] == 0 and ((run, attempt) in about.ended or about.newest.get(run, 0) > attempt):
        good = about.ended.get((run, attempt)) in GOOD_ENDS
        return {
            **row,
            "state": COMPLETED,
            "conclusion": _SKIPPED if good else _CANCELLED,
            "completed_at": None,
        }
    return row


def _number_twins(rows: Sequence[CellRow], workflows: Mapping[int, int]) -> dict[int, int]:
    """Number the jobs of one name, by job id; nearly always there is only one.

    A run of an unknown workflow counts as one of the first.
    """
    known = {workflows[row["run_id"]] for row in rows if row["run_id"] in workflows}
    at_once = Counter((row["run_id"], row["attempt"]) for row in rows)
    if len(known) < 2 and max(at_once.values()) < 2:
        return {}
    first = min(known, default=0)
    by_workflow: defaultdict[int, list[CellRow]] = defaultdict(list)
    for row in rows:
        by_workflow[workflows.get(row["run_id"], first)].append(row)
    numbers: dict[int, int] = {}
    start = 0
    for _, each in sorted(by_workflow.items()):
        most = max(at_once[row["run_id"], row["attempt"]] for row in each)
        for job, twin in _number_jobs(each, most).items():
            numbers[job] = start + twin
        start += most
    return numbers


def _number_jobs(rows: Sequence[CellRow], most: int) -> dict[int, int]:
    """Number the jobs of one name of a workflow; each of its runs has at most `most` of them.

    Where an attempt has all of them, they come in the order of their ids. Where it has fewer, GitHub ran those again
    that had failed, and lists the others as they were.
    """
    if most < 2:
        return {row["job_id"]: 0 for row in rows}
    numbers: dict[int, int] = {}
    by_run: defaultdict[int, defaultdict[int, list[CellRow]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: row["job_id"]):
        by_run[row["run_id"]][row["attempt"]].append(row)
    for attempts in by_run.values():
        newest: dict[int, CellRow] = {}
        for _, each in sorted(attempts.items()):
            numbered = _number_attempt(each, newest, most)
            newest |= numbered
            numbers |= {row["job_id"]: twin for twin, row in numbered.items()}
    return numbers


def _number_attempt(rows: Sequence[CellRow], newest: Mapping[int, CellRow], most: int) -> dict[int, CellRow]:
    """Return the jobs of one attempt by number; `newest` are those of the attempts before."""
    numbered: dict[int, CellRow] = {}
    others = []
    for row in rows:
        copies = (twin for twin in sorted(newest) if twin not in numbered and is_copy(row, newest[twin]))
        if (twin := next(copies, None)) is None:
            others.append(row)
        else:
            numbered[twin] = row
    free = [twin for twin in range(most) if twin not in numbered]
    if len(rows) < most:
        free.sort(key=lambda twin: (twin in newest and newest[twin]["conclusion"] == _SUCCESS, twin))
    return numbered | dict(zip(free, others, strict=False))


def _failure(row: CellRow) -> Failure | None:
    """Return why a run failed, None where nothing is known, as of nearly all."""
    if row["failure_kind"] is None and row["line"] is None and row["tests_failed"] is None:
        return None
    return {
        "signature": row["signature"],
        "line": row["line"],
        "tests_failed": row["tests_failed"],
        "failed_tests": row["failed_tests"],
        "failure_kind": row["failure_kind"],
    }


def _decoded_cell(runs: Sequence[PlacedJob]) -> Cell:
    """Return the cell of some runs; the short way for a single run or all successes, as nearly all are."""
    newest = runs[0].row
    for _, row, twin in runs if len(runs) > 1 else ():
        if row["conclusion"] != _SUCCESS_CODE or row["shard"] or twin:
            return cells.cell(map(make_run, runs))
        newest = row if row["job_id"] > newest["job_id"] else newest
    return Cell(
        character=_WORDS[newest["state"]][newest["conclusion"]],
        job=newest["other_id"] or newest["job_id"],
        completed_at=newest["completed_at"],
        failure=_failure(newest),
        kind=newest["failure_kind"],
    )


async def _make_stored_cells(store: Store, repository_id: int, shas: Sequence[str]) -> None:
    async with store.read() as tx:
        known = await rows.stored_cells(tx, repository_id, shas)
        about = describe_runs(await rows.runs(tx, repository_id, shas))
        runs = await rows.cells(tx, repository_id, shas)
    made = await asyncio.to_thread(make_cells, runs, about)
    async with store.transaction() as tx:
        for sha, row in sorted(known.items()):
            same = (STORED.repository_id == repository_id, STORED.head_sha == sha, STORED.mark == row.mark)
            cells = made.get(sha, {})
            values = {
                "cells": to_bytes(cells),
                "outline": outline_to_bytes(cells, row.mark),
            }
            await tx.run(sa.update(ci_commit).where(*same).values(values))
