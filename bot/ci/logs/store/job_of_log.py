"""Which job a log is of: GitHub has a record of it, a backend uploaded the log, or it ran on another CI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa

from bot.ci.collect.tables import ci_upload
from bot.ci.logs.tables import ci_log
from bot.ci.trunk import job_numbers
from bot.ci.trunk.cells import CONCLUSIONS
from bot.ci.trunk.tables import ci_cell, ci_column
from bot.db.rows import Text
from bot.ingest.tables import records
from bot.oot.results.store.overtaken import passed_later, reported_later

if TYPE_CHECKING:
    Column = sa.ColumnElement[Any]

JOB, LOG, UPLOAD, CELL, COLUMN = (
    records["workflow_job"].c, ci_log.c, ci_upload.c, ci_cell.c, ci_column.c,
)  # fmt: skip
_OWNER, _later = records["repository"].c, ci_cell.alias("later_cell")


class JobName(TypedDict):
    """What GitHub, a backend or another CI calls a job."""

    name: Text | None
    workflow_name: Text | None


def with_jobs(rows: sa.FromClause, repository_id: Column, job_id: Column) -> sa.Join:
    """Return rows about jobs together with what is known of these."""
    of_github = sa.and_(JOB.repository_id == repository_id, JOB.id == job_id)
    elsewhere = sa.and_(
        job_id <= job_numbers.LARGEST, CELL.repository_id == repository_id, CELL.job_id == job_id
    )
    return (
        rows.outerjoin(records["workflow_job"], of_github)
        .outerjoin(ci_upload, UPLOAD.id == -job_id)
        .outerjoin(ci_cell, elsewhere)
        .outerjoin(ci_column, COLUMN.id == CELL.column_id)
    )


LOGS = with_jobs(ci_log, LOG.repository_id, LOG.job_id)
_FULL_NAME = (
    sa.select(_OWNER.full_name)
    .where(_OWNER.repository_id == CELL.repository_id)
    .limit(1)
    .correlate(ci_cell)
    .scalar_subquery()
)
REPO = sa.func.coalesce(JOB.repo, UPLOAD.backend, _FULL_NAME).label("repo")
NAME = sa.func.coalesce(JOB.name, UPLOAD.job, COLUMN.job).label("name")
WORKFLOW = sa.func.coalesce(JOB.workflow_name, UPLOAD.workflow, COLUMN.workflow).label("workflow_name")
RUN = sa.func.coalesce(UPLOAD.run_id, sa.cast(LOG.run_id, sa.Text))
_PASSED_ELSEWHERE = sa.exists().where(
    _later.c.repository_id == CELL.repository_id,
    _later.c.head_sha == CELL.head_sha,
    _later.c.column_id == CELL.column_id,
    _later.c.shard == CELL.shard,
    _later.c.attempt > CELL.attempt,
    _later.c.conclusion == CONCLUSIONS.index("success"),
)
# a later attempt of the job has passed
OVERTAKEN = (
    passed_later(LOG.repository_id, LOG.job_id)
    | reported_later(UPLOAD.backend_key, UPLOAD.run_id, UPLOAD.run_attempt, UPLOAD.job)
    | _PASSED_ELSEWHERE
)
