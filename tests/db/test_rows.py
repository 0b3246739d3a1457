"""Typed rows have the columns of their tables; mypy checks the rest against them."""

from __future__ import annotations

import importlib
from typing import get_type_hints

import pytest

from bot.db.columns import metadata
from bot.features import FEATURES

for feature in FEATURES:
    if feature.tables:
        importlib.import_module(feature.tables)
importlib.import_module("bot.queue.tables")

ROWS = {
    "bot.ingest.rows": {
        "DeliveryRow": "delivery", "SweepRow": "sweep", "MissedDeliveryRow": "missed_delivery",
        "PullRow": "pull_request", "WorkflowRunRow": "workflow_run", "WorkflowJobRow": "workflow_job",
        "CheckRunRow": "check_run",
    },
    "bot.ci.collect.rows": {"ArtifactRow": "ci_artifact", "FetchRow": "ci_fetch", "ListingRow": "ci_listing"},
    "bot.ci.collect.upload_rows": {"UploadRow": "ci_upload"},
    "bot.queue.tables": {"TaskRow": "task"},
    "bot.oot.results.rows": {
        "DispatchRow": "oot_dispatch", "JobRow": "oot_workflow_job", "RerunRow": "oot_rerun", "RunRow": "oot_run",
        "IgnoreRow": "oot_ignore", "ApprovalRow": "oot_approval", "CommandRow": "oot_command",
    },
    "bot.oot.publish.rows": {
        "CheckRow": "oot_check", "CommentRow": "oot_comment", "MentionRow": "oot_mention",
        "MergeGroupRow": "oot_merge_group", "ChangedFilesRow": "oot_changed_files",
    },
    "bot.oot.reports.static_keys": {"KeyRow": "oot_key"},
    "bot.oot.verdict.rows": {"ComparedRow": "oot_compared"},
}  # fmt: skip
PAIRS = [(module, row, table) for module, rows in ROWS.items() for row, table in rows.items()]


@pytest.mark.parametrize(("module", "row", "table"), PAIRS, ids=[row for _, row, _ in PAIRS])
def test_a_typed_row_has_the_columns_of_its_table(module, row, table):
    kind = getattr(importlib.import_module(module), row)
    columns = metadata.tables[table].columns
    assert list(get_type_hints(kind)) == [column.name for column in columns]
    for column in columns:
        assert ("None" in kind.__annotations__[column.name].__forward_arg__) <= bool(column.nullable), (
            column.name
        )
