"""What sinks may have copies of: how often disabled tests passed and failed where they are run over and over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.test_results.job_tables import test_job
from bot.ci.test_results.store.exported_rows import RUN_KEY
from bot.core.stored_objects import StoredObject, json_line, object_key
from bot.db.exports import Export, Shape

if TYPE_CHECKING:
    from bot.db.exports import Row


def copy_reruns(export: Export, row: Row) -> list[StoredObject]:
    """Return the reruns of a run, a line for each test."""
    found = [
        {
            "classname": one["suite"],
            "filename": one["file"],
            "flaky": one["flaky"],
            "name": one["name"],
            "num_green": one["green"],
            "num_red": one["red"],
            "workflow_id": row["run_id"],
            "workflow_run_attempt": row["run_attempt"],
        }
        for one in row["reruns"]
    ]
    key = object_key(export.name, row["run_id"], row["run_attempt"])
    return [StoredObject(key=key, content=lambda: map(json_line, found))]


EXPORTS = (
    Export(
        name="rerun_disabled_tests",
        group="tests",
        table=test_job,
        key=RUN_KEY,
        day="at",
        repositories=("repository_id", "backend", "upstream_repo"),
        condition=test_job.c.rerun_disabled,
        shapes={
            "upstream": Shape(
                make="bot.ci.test_lists.exports:copy_reruns",
                read="bot.ci.test_lists.rerun_rows:read_reruns_of_runs",
                most=20,
            )
        },
    ),
)
