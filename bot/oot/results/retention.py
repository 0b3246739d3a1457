"""Retention of deliveries and records that the loop with the backends still needs, however old they are."""

from __future__ import annotations

import sqlalchemy as sa

from bot.ingest.tables import delivery, records
from bot.oot.results.dispatches import ON_OPEN_HEAD
from bot.oot.results.tables import oot_dispatch, oot_workflow_job


def retained(table: sa.Table) -> sa.ColumnElement[bool] | None:
    """Return the condition that a row of a table is still needed, None where none is."""
    if table is delivery:
        return _deliveries()
    if table is records["workflow_run"]:
        return _runs(table)
    return None


def _deliveries() -> sa.ColumnElement[bool]:
    """Those of unfinished dispatches, and of open heads: a run that cannot be re-run is dispatched again."""
    reported = oot_workflow_job.c.dispatch_id == oot_dispatch.c.id
    running = sa.and_(reported, oot_workflow_job.c.status == "in_progress")
    asked = oot_dispatch.c.action.is_distinct_from("closed")  # that is never reported on
    unanswered = ~sa.exists().where(reported) | sa.exists().where(running)
    unfinished = oot_dispatch.c.state.in_(("pending", "held")) | (
        (oot_dispatch.c.state == "sent") & (oot_dispatch.c.level > 1) & asked & unanswered
    )
    return sa.exists().where(
        oot_dispatch.c.source_guid == delivery.c.guid, unfinished | (asked & ON_OPEN_HEAD)
    )


def _runs(table: sa.Table) -> sa.ColumnElement[bool]:
    """Runs with reports are kept as long as their results: GitHub's status confirms them."""
    job = oot_workflow_job.c
    return sa.exists().where(
        job.run_id == sa.cast(table.c.id, sa.Text),
        sa.func.lower(job.downstream_repo) == sa.func.lower(table.c.repo),
    )
