"""Runs that GitHub has announced beside those that report on a dispatch: the same event started them.

A `repository_dispatch` starts every workflow that listens for it, and GitHub does not say which dispatch a run belongs
to. Runs of one event begin within moments of each other, on the same commit, by the same actor, each of another
workflow. What has reported on another dispatch, or began closer to a run that has, is not counted.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import RowStatement
from bot.ingest.tables import records
from bot.oot.results.tables import RunStatusRow, oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.db.transaction import Transaction
    from bot.ingest.rows import WorkflowRunRow

WITHIN = 30_000  # milliseconds between the runs of one event
EVENT = "repository_dispatch"
Run = tuple[str, str]  # backend, case folded; run id


class NearbyRunRow(RunStatusRow):
    """A run that began at about the time of one that has reported, which may be itself."""

    path: str | None  # of its workflow
    created_at: int | None
    dispatch_id: str | None  # that it has reported on
    beside: int  # the id of the run that has reported


_reported, _near, _job = (
    records["workflow_run"].alias("reported"),
    records["workflow_run"],
    oot_workflow_job.c,
)
_dispatch = (
    sa.select(sa.func.max(_job.dispatch_id))
    .where(
        _job.run_id == sa.cast(_near.c.id, sa.Text),
        sa.func.lower(_job.downstream_repo) == sa.func.lower(_near.c.repo),
    )
    .scalar_subquery()
)
_same_event = (
    _near.c.head_sha == _reported.c.head_sha,
    _near.c.repository_id == _reported.c.repository_id,
    _near.c.actor_login == _reported.c.actor_login,
    _near.c.event == EVENT,
    _reported.c.event == EVENT,
    _near.c.created_at.between(_reported.c.created_at - WITHIN, _reported.c.created_at + WITHIN),
)
NEARBY = RowStatement(
    select(
        NearbyRunRow,
        _near,
        backend_key=sa.func.lower(_near.c.repo),
        run_id=sa.cast(_near.c.id, sa.Text),
        dispatch_id=_dispatch,
        beside=_reported.c.id,
    )
    .join(_reported, sa.and_(*_same_event))
    .where(_reported.c.id.in_(sa.bindparam("numbers", expanding=True)))
    .order_by(_near.c.id, _near.c.run_attempt)
)


async def read_announced(tx: Transaction, runs: Iterable[Run]) -> dict[Run, list[RunStatusRow]]:
    """Return, by runs that have reported, the others that their event started and that have not."""
    wanted = set(runs)
    numbers = sorted({int(run) for _, run in wanted if run.isascii() and run.isdigit() and len(run) < 19})
    if not numbers:
        return {}
    nearby: defaultdict[Run, dict[str, NearbyRunRow]] = defaultdict(dict)
    for row in await tx.fetch(NEARBY, {"numbers": numbers}):
        nearby[row["backend_key"], str(row["beside"])][row["run_id"]] = row  # the newest attempt stays
    return {run: _of_same_event(run[1], list(nearby[run].values())) for run in wanted if run in nearby}


def _of_same_event(reported: str, nearby: Sequence[NearbyRunRow]) -> list[RunStatusRow]:
    mine = next((row["dispatch_id"] for row in nearby if row["run_id"] == reported), None)
    own = [row for row in nearby if row["dispatch_id"] == mine]
    others = [row for row in nearby if row["dispatch_id"] not in {None, mine}]
    paths = {row["path"] for row in own}
    return [
        row
        for row in nearby
        if mine and row["dispatch_id"] is None and row["path"] not in paths
        if _distance(row, own) <= _distance(row, others)
    ]


def _distance(row: NearbyRunRow, others: Sequence[NearbyRunRow]) -> int:
    """Return the time between a run and the nearest of others."""
    at = row["created_at"] or 0
    return min((abs(at - (other["created_at"] or 0)) for other in others), default=WITHIN)


async def read_pulls_beside(tx: Transaction, run: WorkflowRunRow) -> list[tuple[str, int | None]]:
    """Return the pull requests that runs have reported on which the event of this one may have started."""
    if run["event"] != EVENT or run["created_at"] is None:
        return []
    near, job = _near.c, _job
    query = (
        sa.select(job.upstream_repo, job.pr_number)
        .distinct()
        .join_from(
            _near,
            oot_workflow_job,
            (job.run_id == sa.cast(near.id, sa.Text))
            & (sa.func.lower(job.downstream_repo) == sa.func.lower(near.repo)),
        )
        .where(
            near.head_sha == run["head_sha"],
            near.repository_id == run["repository_id"],
            near.event == EVENT,
            near.id != run["id"],
            near.created_at.between(run["created_at"] - WITHIN, run["created_at"] + WITHIN),
            job.dispatch_id.is_not(None),
        )
    )
    return [(repo, number) for repo, number in await tx.run(query)]
