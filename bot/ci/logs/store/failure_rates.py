"""How often failures happen: of all runs of the jobs that they hit, how many failed that way. Public repositories only.

A run of a job is one that began and ended, on whatever commit and shard. Both numbers are of the same runs, those
created since a day, so that none is counted that could not have failed. Jobs of other CIs have no such records.

A large repository has half a million runs in two weeks: they are counted once a minute, for a few windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict

import sqlalchemy as sa
from cachetools import TTLCache

from bot.ci.logs.store.log_rows import DAY
from bot.ci.logs.tables import FIRST, PUBLIC, ci_verdict
from bot.ci.trunk.cells import CONCLUSIONS, STATES
from bot.ci.trunk.tables import ci_cell, ci_column
from bot.core.resources import Resource
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.context import Context
    from bot.db.transaction import Transaction

CELL, COLUMN, VERDICT, REPOSITORY = ci_cell.c, ci_column.c, ci_verdict.c, records["repository"].c
COMPLETED, SKIPPED = STATES.index("completed"), CONCLUSIONS.index("skipped")
SHOWN = 15  # jobs of one failure
WINDOWS = (1, 7, 14, 30)  # days that runs are counted for
COUNTED_FOR = 60  # seconds
Place = tuple[int, int]  # a repository and a column of its grid: a job, named without shard and runner


class Rate(NamedTuple):
    """Runs of some jobs, and how many of them failed in one way."""

    jobs: int
    runs: int


class Counted(NamedTuple):
    """How many runs each job had since a day."""

    days: int
    since: int
    runs: dict[Place, int]

    def runs_of(self, place: Place, failed: int) -> int:
        """Return the runs of a job, never fewer than failed: runs are counted once a minute only."""
        return max(self.runs.get(place, 0), failed)


class JobRate(TypedDict):
    """How often one job fails in one way."""

    repo: str
    job: str  # without shard and runner
    jobs: int
    runs: int


class Counts:
    """The runs of all jobs since some days, counted again after a minute."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._counted: TTLCache[int, dict[Place, int]] = TTLCache(
            len(WINDOWS), COUNTED_FOR, timer=lambda: context.clock.now() / 1000
        )

    async def within(self, tx: Transaction, *, days: int) -> Counted:
        """Return the runs of the smallest window that is not shorter than so many days, or of the longest."""
        window = next((one for one in WINDOWS if one >= days), WINDOWS[-1])
        since = self._clock.now() // DAY - window + 1
        if (found := self._counted.get(since)) is None:
            found = self._counted[since] = await _runs(tx, since=since)
        return Counted(window, since, found)

    async def close(self) -> None:
        """Do nothing: there is nothing to be released."""


COUNTS: Resource[Counts] = Resource("runs_of_jobs", Counts)


async def rates_of_signatures(
    tx: Transaction, signatures: Collection[str], counted: Counted
) -> dict[str, Rate]:
    """Return how often the jobs that each failure hits fail that way; none without such records."""
    hit = await _hit(tx, signatures, since=counted.since)
    return {
        signature: Rate(
            sum(places.values()), sum(counted.runs_of(place, jobs) for place, jobs in places.items())
        )
        for signature, places in hit.items()
    }


async def rates_of_jobs(tx: Transaction, signature: str, counted: Counted) -> list[JobRate]:
    """Return how often each job fails in that way, those that it hits most first."""
    hit = (await _hit(tx, [signature], since=counted.since)).get(signature, {})
    most = sorted(hit, key=lambda place: (-hit[place], place))[:SHOWN]
    names = await _names(tx, most)
    return [
        {
            "repo": names[place][0],
            "job": names[place][1],
            "jobs": hit[place],
            "runs": counted.runs_of(place, hit[place]),
        }
        for place in most
        if place in names
    ]


async def _hit(tx: Transaction, signatures: Collection[str], *, since: int) -> dict[str, dict[Place, int]]:
    """Return how many runs of each job failed in each of these ways."""
    of_job = sa.and_(CELL.repository_id == VERDICT.repository_id, CELL.job_id == VERDICT.job_id)
    is_public = sa.and_(REPOSITORY.repository_id == VERDICT.repository_id, REPOSITORY.private.is_(False))
    query = (
        sa.select(VERDICT.signature, CELL.repository_id, CELL.column_id, sa.func.count().label("jobs"))
        .select_from(ci_verdict.join(ci_cell, of_job).join(records["repository"], is_public))
        .where(
            FIRST, VERDICT.family == PUBLIC, VERDICT.signature.in_(sorted(signatures)), VERDICT.day >= since
        )
        .where(_ended(since))
        .group_by(VERDICT.signature, CELL.repository_id, CELL.column_id)
    )
    found: dict[str, dict[Place, int]] = {}
    for row in await tx.run(query):
        found.setdefault(row.signature, {})[row.repository_id, row.column_id] = row.jobs
    return found


async def _runs(tx: Transaction, *, since: int) -> dict[Place, int]:
    """Return how many runs each job had."""
    repositories = sa.select(COLUMN.repository_id).distinct()  # the index of times begins with them
    query = (
        sa.select(CELL.repository_id, CELL.column_id, sa.func.count().label("runs"))
        .where(CELL.repository_id.in_(repositories), _ended(since))
        .group_by(CELL.repository_id, CELL.column_id)
    )
    return {(row.repository_id, row.column_id): row.runs for row in await tx.run(query)}


async def _names(tx: Transaction, places: Collection[Place]) -> dict[Place, tuple[str, str]]:
    """Return the repository's name and the job's, workflow included."""
    query = (
        sa.select(COLUMN.id, COLUMN.repository_id, REPOSITORY.full_name, COLUMN.workflow, COLUMN.job)
        .join(records["repository"], REPOSITORY.repository_id == COLUMN.repository_id)
        .where(COLUMN.id.in_(sorted(column for _, column in places)))
    )
    return {
        (row.repository_id, row.id): (
            row.full_name,
            f"{row.workflow} / {row.job}" if row.workflow else row.job,
        )
        for row in await tx.run(query)
    }


def _ended(since: int) -> sa.ColumnElement[bool]:
    """Whether a run was created since a day, began and ended."""
    return sa.and_(
        CELL.queued_at >= since * DAY,
        CELL.started_at.is_not(None),
        CELL.state == COMPLETED,
        CELL.conclusion != SKIPPED,
    )
