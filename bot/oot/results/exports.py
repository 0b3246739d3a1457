"""What sinks may have copies of: the jobs that backends reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape
from bot.oot.results import crcr_columns
from bot.oot.results.tables import JobRow, oot_workflow_job

if TYPE_CHECKING:
    from bot.db.exports import Row


def copy_job(export: Export, row: Row) -> list[StoredObject]:
    """Return a job as an object with the columns of `crcr_workflow_job`."""
    job = cast("JobRow", row)
    key = "/".join((export.name, repo_key(job["downstream_repo"]), object_key(job["job_key"])))
    return [StoredObject(key=key, content=lambda: (json_line(crcr_columns.columns(job)),))]


EXPORTS = (
    Export(
        name="oot_workflow_job",
        table=oot_workflow_job,
        day="received_at",
        repositories=("downstream_repo", "upstream_repo"),
        shapes={"upstream": Shape(make="bot.oot.results.exports:copy_job", most=500)},
    ),
)
