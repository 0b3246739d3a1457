"""Numbers of the grid's columns: a column is made when the first of its jobs is heard of."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from bot.ci.collect import job_names
from bot.ci.trunk.tables import ColumnName, ColumnSource, ci_column
from bot.db.statements import Statement
from bot.db.transaction import Slot, among_given

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.db.transaction import Transaction

COLUMN = ci_column.c
ACTIONS, STATUS = "actions", "status"  # sources of columns; another CI is named as its provider
KEY = ("repository_id", "source", "workflow", "job")
NAMES_MOST, NAME_MOST = 10_000, 200  # of jobs, taken apart, and characters of each
KNOWN_MOST = 50_000  # columns
Key = tuple[int, str, str, str]


class Named(NamedTuple):
    """What a job's name says of its column."""

    column: ColumnName
    told: ColumnSource
    numbered: str | None  # with its numbers, where these may be a shard and not part of the name
    shard: int
    shards: int  # 0: none

    def key(self, repository_id: int, job: str | None = None) -> Key:
        """Return the key of its column in a repository, or of the one for another form of the job's name."""
        return repository_id, self.told["source"], self.column["workflow"], job or self.column["job"]


class _Column(NamedTuple):
    id: int
    seen: int  # the day of its newest job


# what is stored and is not deleted as long as younger jobs than 400 days come in
KNOWN: Slot[dict[Key, _Column]] = Slot("columns of the grid", dict)


def parse_name(workflow: str, name: str) -> Named:
    """Take a job's name apart."""
    return (_parse_name if len(workflow) + len(name) <= NAME_MOST else _parse_name.__wrapped__)(
        workflow, name
    )


@lru_cache(maxsize=NAMES_MOST)
def _parse_name(workflow: str, name: str) -> Named:
    found = job_names.parse_name(workflow, name)
    return Named(
        column={
            "workflow": found.workflow,
            "job": found.job,
            "base_name": found.base_name,
            "config": found.config,
            "flags": ",".join(found.flags),
        },
        told={"source": ACTIONS, "shown_as": None},
        numbered=found.numbered if found.shards else None,
        shard=found.shard or 0,
        shards=found.shards or 0,
    )


def name_elsewhere(source: str, workflow: str, job: str, shown_as: str | None) -> Named:
    """Return the column of a job that ran elsewhere: its name is taken as it is."""
    return Named(
        column={"workflow": workflow, "job": job, "base_name": job, "config": "", "flags": ""},
        told={"source": source, "shown_as": shown_as},
        numbered=None,
        shard=0,
        shards=0,
    )


async def assign_ids(tx: Transaction, jobs: Iterable[tuple[int, Named, int]]) -> Mapping[Key, int]:
    """Return the numbers of the columns of some jobs, given with their repository and day; makes those that are new."""
    wanted: dict[Key, tuple[int, Named]] = {}
    for repository, name, day in jobs:
        for job in (name.column["job"], name.numbered):
            if job is not None:
                key = name.key(repository, job)
                if key not in wanted or wanted[key][0] < day:
                    wanted[key] = (day, name)
    kept = tx.kept(KNOWN)
    known = {key: kept[key] for key in wanted if key in kept}
    if unsure := [key for key, (day, _) in wanted.items() if key not in known or known[key].seen < day]:
        if len(kept) + len(unsure) > KNOWN_MOST:
            kept.clear()
        found = await _read_columns(tx, unsure)  # before anything is made that a rollback would take away
        kept |= found
        known |= found
    if outdated := sorted(key for key in unsure if key not in known or known[key].seen < wanted[key][0]):
        made = [_row(key, *wanted[key]) for key in outdated]
        await tx.upsert(ci_column, made, greatest=("seen",), index=KEY)
        found = await _read_columns(tx, outdated)
        tx.note_changed("ci_column", [{"id": one.id} for one in found.values()])
        known |= found
    return {key: one.id for key, one in known.items()}


async def _read_columns(tx: Transaction, wanted: Iterable[Key]) -> dict[Key, _Column]:
    rows = await tx.run(_query_by_keys(sqlite=tx.sqlite), {"wanted": tx.keys(sorted(wanted))})
    return {
        (repository, source, workflow, job): _Column(found, seen)
        for repository, source, workflow, job, found, seen in rows
    }


@cache
def _query_by_keys(*, sqlite: bool) -> Statement:
    columns = [COLUMN[name] for name in KEY]
    query = sa.select(*columns, COLUMN.id, COLUMN.seen)
    return Statement(query.where(among_given(columns, "wanted", sqlite=sqlite)))


def _row(key: Key, day: int, name: Named) -> Mapping[str, Any]:
    return {**name.column, **name.told, **dict(zip(KEY, key, strict=True)), "seen": day}
