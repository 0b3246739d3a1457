"""Results that no longer count: a later attempt of the job has passed, or its backend was dispatched again."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from bot.ingest.tables import records
from bot.oot.results.tables import oot_dispatch, oot_workflow_job

Column = sa.ColumnElement[Any]
_job = records["workflow_job"].alias("overtaken_job")
_later = records["workflow_job"].alias("later_job")
_report = oot_workflow_job.alias("later_report")
_older, _newer = oot_dispatch.alias("older_dispatch"), oot_dispatch.alias("newer_dispatch")
_SAME = ("upstream_repo", "pr_number", "head_sha", "base_ref", "backend_key", "event_type")


def passed_later(repository_id: Column, job_id: Column) -> Column:
    """Whether a later attempt of a job in its run has passed, according to GitHub."""
    return sa.exists().where(
        _job.c.repository_id == repository_id,
        _job.c.id == job_id,
        _later.c.repository_id == repository_id,
        _later.c.run_id == _job.c.run_id,
        _later.c.run_attempt > _job.c.run_attempt,
        _later.c.name == _job.c.name,
        _later.c.conclusion == "success",
    )


def reported_later(backend_key: Column, run_id: Column, attempt: Column, name: Column) -> Column:
    """Whether a later attempt of a job in its run has passed, according to its backend; the id of the run is a text."""
    return sa.exists().where(
        _report.c.run_id == run_id,
        _report.c.job_name == name,
        sa.func.lower(_report.c.downstream_repo) == backend_key,
        _report.c.run_attempt > attempt,
        _report.c.conclusion == "success",
    )


def dispatched_later(dispatch_id: Column) -> Column:
    """Whether the same backend was dispatched again for the same commit, which was not dropped."""
    newer = sa.tuple_(_newer.c.created_at, _newer.c.id) > sa.tuple_(_older.c.created_at, _older.c.id)
    return sa.exists().where(
        _older.c.id == dispatch_id,
        *(_newer.c[name].is_not_distinct_from(_older.c[name]) for name in _SAME),
        newer,
        _newer.c.state != "superseded",
    )
