"""What sinks may have copies of: the jobs that backends reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from bot.core.column_tables import ColumnTable, TableCopy
from bot.core.stored_items import StoredItem
from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape
from bot.db.table_copies import COPIED
from bot.oot.results import crcr_columns, shown
from bot.oot.results.tables import JobRow, oot_workflow_job

if TYPE_CHECKING:
    from bot.db.exports import Key, Row


def copy_job(export: Export, row: Row) -> list[StoredObject]:
    """Return a job as an object with the columns of `crcr_workflow_job`."""
    job = cast("JobRow", row)
    key = "/".join((export.name, repo_key(job["downstream_repo"]), object_key(job["job_key"])))
    return [StoredObject(key=key, content=lambda: (json_line(crcr_columns.columns(job)),))]


def copy_upstream_job(_export: Export) -> TableCopy:
    """Return the copy of jobs in today's relay's table, `default.crcr_workflow_job`."""

    def key_values(_key: Key, row: Row | None) -> tuple[str, ...] | None:
        return None if row is None else (crcr_columns.key(cast("JobRow", row)),)

    return TableCopy(
        table=ColumnTable(
            name="default.crcr_workflow_job",
            columns=crcr_columns.TYPES,
            order=("downstream_repo", "delivery_id", "dynamoKey"),
            computed=crcr_columns.COMPUTED,
        ),
        rows=lambda row: (crcr_columns.columns(cast("JobRow", row)),),
        key=("dynamoKey",),
        key_values=key_values,
    )


def copy_item(_export: Export, row: Row) -> list[StoredItem]:
    """Return a job as an item with the columns of `crcr_workflow_job`, without what is not known."""
    job = cast("JobRow", row)
    columns = crcr_columns.columns(job)
    columns |= {name: None for name, at in shown.times(job)._asdict().items() if at is None}
    return [StoredItem(table="oot-workflow-job", key=crcr_columns.key(job), attributes=columns)]


EXPORTS = (
    Export(
        name="oot_workflow_job",
        table=oot_workflow_job,
        day="received_at",
        repositories=("downstream_repo", "upstream_repo"),
        shapes={
            "upstream": Shape(make="bot.oot.results.exports:copy_job", most=500),
            "clickhouse.ootbot": COPIED,
            "clickhouse.upstream": Shape(make="bot.oot.results.exports:copy_upstream_job"),
            "dynamodb": Shape(make="bot.oot.results.exports:copy_item", most=500),
        },
    ),
)
