"""Records as items of upstream's tables in DynamoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.stored_items import StoredItem
from bot.ingest.exported_objects import newest_object
from bot.ingest.exported_tables import upstream_key
from bot.ingest.records import TYPES

if TYPE_CHECKING:
    from bot.db.exports import Export, Row

ITEM_TABLES = {
    "workflow_job": "workflow-job",
    "workflow_run": "workflow-run",
    "issue": "issues",
    "issue_comment": "issue-comment",
    "pull_request": "pull-request",
    "pull_review": "pull-request-review",
    "pull_review_comment": "pull-request-review-comment",
    "push": "push",
    "issue_label_event": "issues-label-event",
    "pull_label_event": "pull-label-event",
}
LABEL_EVENTS = {"issue_label_event": "issue", "pull_label_event": "pull_request"}


def copy_item(export: Export, row: Row) -> list[StoredItem]:
    """Return the item of a record: GitHub's object."""
    table = ITEM_TABLES[export.name]
    if export.name in LABEL_EVENTS:
        return [_label_event(table, LABEL_EVENTS[export.name], row)]
    found = newest_object(row, TYPES[export.name].at)
    return [StoredItem(table=table, key=_key(export.name, row, found), attributes=found)]


def _key(name: str, row: Row, found: object) -> str:
    issue = row.get("issue_url") if name == "issue_comment" else None
    if isinstance(issue, str) and isinstance(found, dict):
        return f"{row['repo']}/{issue.rpartition('/')[2]}/{row['id']}"
    return upstream_key(name, row)


def _label_event(table: str, subject: str, row: Row) -> StoredItem:
    """Return a label that was put on or taken off; upstream's key without a time has only the last of them."""
    number, label, at = row[f"{subject}_number"], row["label_name"], row[f"{subject}_updated_at"]
    attributes = {
        "repo_name": row["repo"],
        "number": number,
        "label_name": label,
        "action": row["action"],
        "event_time": at,
    }
    return StoredItem(
        table=table, key=f"{row['repo']}/{number}-{label}-{at or row['received_at']}", attributes=attributes
    )
