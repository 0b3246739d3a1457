"""Which rows count? Jobs and silent dispatches of some days, each with the word whether it belongs to the numbers.

What docs/statistics.md says of runs, said in SQL: `tests.by_hand` says the same of rows that are all at hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.domain.tally import ENDS
from bot.store.tables import oot_dispatch, oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from bot.store.transaction import Transaction

Row = dict[str, Any]
JOB, TOLD = oot_workflow_job.c, oot_dispatch.c
SLICE = 500  # rows read at a time
_other = oot_workflow_job.alias("other")


def flagged(name: str, flags: Any = JOB.flags) -> sa.ColumnElement[bool]:
    """Whether a row carries a flag; its JSON is not read for that."""
    return sa.cast(flags, sa.Text).contains(f'"{name}":')


_OVERTAKEN = sa.exists().where(
    _other.c.run_id == JOB.run_id,
    _other.c.job_name == JOB.job_name,
    _other.c.workflow_name == JOB.workflow_name,
    _other.c.delivery_id == JOB.delivery_id,
    # the empty text keeps SQLite from looking among all runs of the backend instead of among those of the run
    sa.func.lower(_other.c.downstream_repo) + "" == sa.func.lower(JOB.downstream_repo),
    _other.c.run_attempt >= JOB.run_attempt,  # said apart: so an index begins there
    (_other.c.run_attempt > JOB.run_attempt) | (_other.c.source < JOB.source),  # callback before relay
    ~flagged("refused", _other.c.flags),
)
_DROPPED = sa.exists().where(TOLD.id == JOB.dispatch_id, TOLD.state == "superseded")
COUNTS = (~_OVERTAKEN & ~_DROPPED).label("counts")
HEARD = sa.exists().where(JOB.dispatch_id == TOLD.id, ~flagged("refused"))

JOB_COLUMNS = (
    JOB.downstream_repo, JOB.downstream_repo_level, JOB.upstream_repo, JOB.event_type, JOB.status, JOB.conclusion,
    JOB.queue_time, JOB.execution_time, JOB.received_at, JOB.updated_at, flagged("swept").label("swept"), COUNTS,
)  # fmt: skip
DISPATCH_COLUMNS = (
    TOLD.backend, TOLD.level, TOLD.upstream_repo, TOLD.event_type, TOLD.state, TOLD.created_at,
    (~HEARD).label("counts"),
)  # fmt: skip


async def slices(
    tx: Transaction, backends: Collection[str], *, since: int, until: int
) -> AsyncIterator[tuple[list[Row], list[Row]]]:
    """Yield jobs first heard of, and silent dispatches recorded, in a span of time; backends are case folded.

    Few at a time: a day has any number of them.
    """
    keys = sorted(backends)
    jobs = sa.select(*JOB_COLUMNS).where(
        sa.func.lower(JOB.downstream_repo).in_(keys),
        JOB.received_at.between(since, until),
        ~flagged("refused"),
    )
    silent = sa.select(*DISPATCH_COLUMNS).where(
        TOLD.state.in_(list(ENDS)), TOLD.created_at.between(since, until), TOLD.backend_key.in_(keys)
    )
    async for some in tx.slices(jobs, size=SLICE):
        yield some, []
    async for some in tx.slices(silent, size=SLICE):
        yield [], some
