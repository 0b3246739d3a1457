"""Columns of the grid: their numbers, the statuses that only repeat a job, the jobs that issues call unstable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from bot.db.statements import Statement
from bot.db.transaction import Slot, among_given
from bot.jobs import branches, job_names
from bot.jobs.tables import ColumnName, ColumnSource, branch_commit, ci_broken, ci_column, ci_unstable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from bot.db.transaction import Transaction
    from bot.jobs.commit_cells import ByColumn
    from bot.jobs.tables import ColumnRow

COLUMN = ci_column.c
ACTIONS, STATUS = "actions", "status"  # sources of columns; another CI is named as its provider
COLUMN_KEY = ("repository_id", "source", "workflow", "job")
NAMES_MOST, NAME_MOST = 10_000, 200  # of jobs, taken apart, and characters of each
KNOWN_MOST = 50_000  # columns
ColumnIdentity = tuple[int, str, str, str]
# what is stored and is not deleted as long as younger jobs than 400 days come in
KNOWN_COLUMNS: Slot[dict[ColumnIdentity, _Column]] = Slot("columns of the grid", dict)
UNSTABLE, BROKEN, COMMIT = ci_unstable.c, ci_broken.c, branch_commit.c
UNSTABLE_MOST = 1_000
_ENDS = re.compile(r" / | \(")  # where the beginning of a name may end


class NumberedColumn(NamedTuple):
    """What a job's name says of its column."""

    column: ColumnName
    told: ColumnSource
    numbered: str | None  # with its numbers, where these may be a shard and not part of the name
    shard: int
    shards: int  # 0: none

    def key(self, repository_id: int, job: str | None = None) -> ColumnIdentity:
        """Return the key of its column in a repository, or of the one for another form of the job's name."""
        return repository_id, self.told["source"], self.column["workflow"], job or self.column["job"]


class _Column(NamedTuple):
    id: int
    seen: int  # the day of its newest job


@dataclass(frozen=True, kw_only=True)
class DuplicateStatuses:
    """Which columns the columns of commit statuses duplicate, by number."""

    all: frozenset[int]
    alone: Mapping[int, int]  # the one column that a status stands for
    several: Mapping[int, frozenset[int]]


NO_DUPLICATES = DuplicateStatuses(all=frozenset(), alone={}, several={})


def parse_name(workflow: str, name: str) -> NumberedColumn:
    """Take a job's name apart."""
    return (_parse_name if len(workflow) + len(name) <= NAME_MOST else _parse_name.__wrapped__)(
        workflow, name
    )


def name_elsewhere(source: str, workflow: str, job: str, shown_as: str | None) -> NumberedColumn:
    """Return the column of a job that ran elsewhere; its name is taken as it is."""
    return NumberedColumn(
        column={"workflow": workflow, "job": job, "base_name": job, "config": "", "flags": ""},
        told={"source": source, "shown_as": shown_as},
        numbered=None,
        shard=0,
        shards=0,
    )


async def assign_ids(
    tx: Transaction, jobs: Iterable[tuple[int, NumberedColumn, int]]
) -> Mapping[ColumnIdentity, int]:
    """Return the column numbers of some jobs, given with repository and day; new columns are created."""
    wanted: dict[ColumnIdentity, tuple[int, NumberedColumn]] = {}
    for repository, name, day in jobs:
        for job in (name.column["job"], name.numbered):
            if job is not None:
                key = name.key(repository, job)
                if key not in wanted or wanted[key][0] < day:
                    wanted[key] = (day, name)
    kept = tx.kept(KNOWN_COLUMNS)
    known = {key: kept[key] for key in wanted if key in kept}
    if unsure := [key for key, (day, _) in wanted.items() if key not in known or known[key].seen < day]:
        if len(kept) + len(unsure) > KNOWN_MOST:
            kept.clear()
        read = await _read_columns(tx, unsure)  # before anything is made that a rollback would take away
        kept |= read
        known |= read
    if outdated := sorted(key for key in unsure if key not in known or known[key].seen < wanted[key][0]):
        made = [_column_row(key, *wanted[key]) for key in outdated]
        await tx.upsert(ci_column, made, greatest=("seen",), index=COLUMN_KEY)
        read = await _read_columns(tx, outdated)
        tx.note_changed("ci_column", [{"id": column.id} for column in read.values()])
        known |= read
    return {key: column.id for key, column in known.items()}


def find_duplicates(columns: Mapping[int, ColumnRow]) -> DuplicateStatuses:
    """Return what the columns of commit statuses stand for."""
    statuses = {key: row for key, row in columns.items() if row["source"] == STATUS}
    if not statuses:
        return NO_DUPLICATES
    others = {key: row["shown_as"] for key, row in columns.items() if row["shown_as"] and key not in statuses}
    alone: dict[int, int] = {}
    several: dict[int, frozenset[int]] = {}
    for key, row in statuses.items():
        shown = _stands_for(row["shown_as"] or "", others)
        same = [other for other in shown if others[other] == row["shown_as"]]
        if len(shown) == 1 and same:
            alone[key] = same[0]
        elif shown:
            several[key] = frozenset(shown)
    return DuplicateStatuses(all=frozenset(statuses), alone=alone, several=several)


def contexts_of(columns: Iterable[ColumnRow]) -> set[str]:
    """Return the names of commit statuses, and their beginnings up to each slash: names that columns are shown as."""
    contexts: set[str] = set()
    for row in columns:
        if row["source"] == STATUS and (context := row["shown_as"]):
            parts = context.split("/")
            contexts.update("/".join(parts[:length]) for length in range(1, len(parts) + 1))
    return contexts


def without_statuses(cells: ByColumn, statuses: DuplicateStatuses) -> ByColumn:
    """Return a commit's cells without those of commit statuses."""
    if not statuses.all:
        return cells
    return {key: cell for key, cell in cells.items() if key not in statuses.all}


def only_statuses(cells: ByColumn, statuses: DuplicateStatuses) -> ByColumn:
    """Return those of a commit's cells that are known from commit statuses only."""
    return {key: cell for key, cell in without_covered(cells, statuses).items() if key in statuses.all}


def without_covered(cells: ByColumn, statuses: DuplicateStatuses) -> ByColumn:
    """Return a commit's cells without those of statuses that duplicate a column with a cell there."""
    nothing: frozenset[int] = frozenset()
    return {
        key: cell
        for key, cell in cells.items()
        if statuses.alone.get(key) not in cells
        and cells.keys().isdisjoint(statuses.several.get(key, nothing))
    }


async def replace_unstable_names(tx: Transaction, repository_id: int, names: Collection[str]) -> None:
    """Replace the names of a repository's unstable jobs."""
    wanted = frozenset(sorted(names)[:UNSTABLE_MOST])
    if wanted == await unstable_names(tx, repository_id):
        return
    await tx.run(sa.delete(ci_unstable).where(UNSTABLE.repository_id == repository_id))
    if wanted:
        made = [{"repository_id": repository_id, "name": name} for name in sorted(wanted)]
        await tx.run(sa.insert(ci_unstable), made)
    await _count_again(tx, repository_id)


async def unstable_names(tx: Transaction, repository_id: int) -> frozenset[str]:
    """Return the names of a repository's unstable jobs, as issues have them."""
    query = sa.select(UNSTABLE.name).where(UNSTABLE.repository_id == repository_id)
    return frozenset((await tx.run(query)).scalars())


def plain_names(names: Collection[str]) -> frozenset[str]:
    """Return names, as issues have them, without shards and runners, as `covers_name` takes them."""
    plain = set()
    for name in names:
        workflow, _, job = name.partition(" / ")
        plain.add((job_names.parse_name(workflow, job).shard_free if job else workflow).casefold())
    return frozenset(plain)


def covers_name(names: frozenset[str], workflow: str, job: str) -> bool:
    """Whether one of these names covers a job, given without shard and runner.

    A name may be that of a job, or only its beginning: a workflow, a build, or a test without its configuration.
    """
    if not names:
        return False
    full = (f"{workflow} / {job}" if workflow else job).casefold()
    return full in names or any(full[: end.start()] in names for end in _ENDS.finditer(full))


@lru_cache(maxsize=NAMES_MOST)
def _parse_name(workflow: str, name: str) -> NumberedColumn:
    parsed = job_names.parse_name(workflow, name)
    return NumberedColumn(
        column={
            "workflow": parsed.workflow,
            "job": parsed.job,
            "base_name": parsed.base_name,
            "config": parsed.config,
            "flags": ",".join(parsed.flags),
        },
        told={"source": ACTIONS, "shown_as": None},
        numbered=parsed.numbered if parsed.shards else None,
        shard=parsed.shard or 0,
        shards=parsed.shards or 0,
    )


async def _read_columns(tx: Transaction, wanted: Iterable[ColumnIdentity]) -> dict[ColumnIdentity, _Column]:
    rows = await tx.run(_query_by_keys(sqlite=tx.sqlite), {"wanted": tx.keys(sorted(wanted))})
    return {
        (repository, source, workflow, job): _Column(identifier, seen)
        for repository, source, workflow, job, identifier, seen in rows
    }


@cache
def _query_by_keys(*, sqlite: bool) -> Statement:
    columns = [COLUMN[name] for name in COLUMN_KEY]
    query = sa.select(*columns, COLUMN.id, COLUMN.seen)
    return Statement(query.where(among_given(columns, "wanted", sqlite=sqlite)))


def _column_row(key: ColumnIdentity, day: int, name: NumberedColumn) -> Mapping[str, Any]:
    return {**name.column, **name.told, **dict(zip(COLUMN_KEY, key, strict=True)), "seen": day}


def _stands_for(context: str, others: Mapping[int, str | None]) -> list[int]:
    return sorted(key for key, shown in others.items() if context == shown or context.startswith(f"{shown}/"))


async def _count_again(tx: Transaction, repository_id: int) -> None:
    """Request a new count of the newest day of each branch, and so of what is broken."""
    counted = sa.select(BROKEN.branch).where(BROKEN.repository_id == repository_id).distinct()
    query = sa.select(COMMIT.branch, sa.func.max(COMMIT.at)).where(
        COMMIT.repository_id == repository_id, COMMIT.branch.in_(counted)
    )
    rows = (await tx.run(query.group_by(COMMIT.branch))).all()
    branches.request_sums(tx, repository_id, [(branch, at) for branch, at in rows])
