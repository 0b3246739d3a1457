"""Records as rows of upstream's tables in ClickHouse, under upstream's names: GitHub's objects, column by column.

Their tables have more columns than are named here: each that the object has, too, is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.core.column_tables import ColumnTable, TableCopy
from bot.db.table_copies import column_types, copy_of
from bot.ingest.exported_objects import newest_object
from bot.ingest.records import TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.db.exports import Export, Key, Row

TIME = "DateTime64(9)"
STEP = f"Tuple(completed_at {TIME}, conclusion String, name String, number Int64, started_at {TIME}, status String)"
ACCOUNT = "Tuple(id Int64, login String, type String, html_url String)"
COMMIT = f"Tuple(id String, message String, timestamp {TIME}, tree_id String, author Tuple(email String, name String))"
LABELS = "Array(Tuple(id Int64, name String))"
REPOSITORY = "Tuple(id Int64, name String, full_name String, html_url String)"
BRANCH = "Tuple(label String, ref String, sha String)"
TEXTS, WHOLE = "String", "Int64"
CLASSIFICATION = (
    f"Tuple(captures Array({TEXTS}), context Array({TEXTS}), job_id {WHOLE}, line {TEXTS}, line_num {WHOLE},"
    f" rule {TEXTS})"
)
COMMENT = {
    **dict.fromkeys(("body", "html_url", "node_id", "url", "author_association"), TEXTS), "id": WHOLE, "user": ACCOUNT,
    **dict.fromkeys(("created_at", "updated_at"), TIME),
}  # fmt: skip
COLUMNS: dict[str, dict[str, str]] = {
    "workflow_job": {
        **dict.fromkeys(
            ("check_run_url", "conclusion", "head_branch", "head_sha", "html_url", "name", "node_id", "run_url",
             "runner_group_name", "runner_name", "status", "url", "workflow_name"), TEXTS),
        **dict.fromkeys(("completed_at", "created_at", "started_at"), TIME),
        **dict.fromkeys(("id", "run_attempt", "run_id", "runner_group_id", "runner_id"), WHOLE),
        "labels": "Array(String)", "steps": f"Array({STEP})", "backfill": "Bool",
        **dict.fromkeys(("torchci_classification", "torchci_classification_temp"), CLASSIFICATION),
    },
    "workflow_run": {
        **dict.fromkeys(
            ("artifacts_url", "conclusion", "display_title", "event", "head_branch", "head_sha", "html_url", "name",
             "node_id", "path", "status", "url"), TEXTS),
        **dict.fromkeys(("created_at", "updated_at", "run_started_at"), TIME),
        **dict.fromkeys(("id", "run_attempt", "run_number", "check_suite_id", "workflow_id"), WHOLE),
        "actor": ACCOUNT, "triggering_actor": ACCOUNT, "head_commit": COMMIT, "head_repository": REPOSITORY,
        "repository": REPOSITORY,
    },
    "push": {
        **dict.fromkeys(("after", "before", "ref", "base_ref", "compare"), TEXTS),
        **dict.fromkeys(("created", "deleted", "forced"), "Bool"),
        "commits": f"Array({COMMIT})", "head_commit": COMMIT, "pusher": "Tuple(email String, name String)",
        "repository": REPOSITORY, "sender": ACCOUNT,
    },
    "pull_request": {
        **dict.fromkeys(("body", "html_url", "merge_commit_sha", "node_id", "state", "title", "url"), TEXTS),
        **dict.fromkeys(("created_at", "updated_at", "closed_at", "merged_at"), TIME),
        **dict.fromkeys(("id", "number", "additions", "deletions", "changed_files"), WHOLE),
        "draft": "Bool", "merged": "Bool", "labels": LABELS, "user": ACCOUNT, "head": BRANCH, "base": BRANCH,
    },
    "issues": {
        **dict.fromkeys(("body", "html_url", "node_id", "state", "title", "url", "author_association"), TEXTS),
        **dict.fromkeys(("created_at", "updated_at", "closed_at"), TIME),
        **dict.fromkeys(("id", "number", "comments"), WHOLE), "labels": LABELS, "user": ACCOUNT, "assignee": ACCOUNT,
    },
    "issue_comment": {**COMMENT, "issue_url": TEXTS},
    "pull_request_review": {
        **dict.fromkeys(("body", "commit_id", "html_url", "node_id", "state", "author_association"), TEXTS),
        "id": WHOLE, "submitted_at": TIME, "user": ACCOUNT,
    },
    "pull_request_review_comment": {
        **COMMENT, **dict.fromkeys(("commit_id", "diff_hunk", "path", "pull_request_url"), TEXTS), "line": WHOLE,
    },
}  # fmt: skip
# our names of records -> upstream's, where they differ
NAMES = {
    "issue": "issues",
    "pull_review": "pull_request_review",
    "pull_review_comment": "pull_request_review_comment",
}
BY_NUMBER = frozenset({"issue", "pull_request"})
NOW = "DateTime MATERIALIZED now()"
# what saved queries of upstream's dashboards ask for, and the server makes of the other columns
COMPUTED = {
    "workflow_job": {
        "_inserted_at": NOW,
        "repository_full_name": f"{TEXTS} ALIAS extract(url, '/repos/([^/]+/[^/]+)/actions/jobs/')",
        # of a job that goes on after a failure: here it fails once it has ended
        "torchci_classification_kg": f"{CLASSIFICATION} ALIAS torchci_classification",
        "conclusion_kg": f"{TEXTS} ALIAS conclusion",
        # the key of the export `logs` in an object store
        "log_url": f"{TEXTS} ALIAS concat('log/', repository_full_name, '/', toString(id))",
    },
    "workflow_run": {"_inserted_at": NOW},
}
# where those queries look up ids: at upstream they are tables in another order
VIEWS = {
    "workflow_job": {
        f"materialized_views.workflow_job_by_{name}": ("id", name)
        for name in ("head_sha", "created_at", "started_at", "completed_at")
    },
    "workflow_run": {
        f"materialized_views.workflow_run_by_{name}": ("id", name) for name in ("head_sha", "created_at")
    },
}
ORDERS = {"workflow_job": ("id", "run_id", "dynamoKey"), "push": ("dynamoKey",)}
ADDED = ("torchci_classification",)  # by other capabilities: no part of GitHub's object
MAPPED = frozenset(name for name in TYPES if NAMES.get(name, name) in COLUMNS)  # records that upstream has


def upstream_key(export: str, row: Row) -> str:
    """Return the key of a record in upstream's tables; of a push its delivery, where upstream takes a random one."""
    if "guid" in row:
        return str(row["guid"])
    return f"{row['repo']}/{row['number' if export in BY_NUMBER else 'id']}"


def copy_record(export: Export) -> TableCopy:
    """Return the copy of a record in upstream's table."""
    name = NAMES.get(export.name, export.name)
    at = TYPES[export.name].at

    def key_values(_key: Key, row: Row | None) -> tuple[str] | None:
        return None if row is None else (upstream_key(export.name, row),)

    def rows(row: Row) -> Iterable[Mapping[str, Any]]:
        found = newest_object(row, at)
        if "_partial" in found:
            found = found | _members(found)
        added = {name: row[name] for name in ADDED if name in row}
        return ({**found, **added, "dynamoKey": upstream_key(export.name, row)},)

    return TableCopy(
        table=ColumnTable(
            name=f"default.{name}",
            columns={"dynamoKey": TEXTS, **COLUMNS[name]},
            order=ORDERS.get(name, ("id", "dynamoKey")),
            computed=COMPUTED.get(name, {}),
            views=VIEWS.get(name, {}),
            open=True,
        ),
        rows=rows,
        key=("dynamoKey",),
        key_values=key_values,
    )


def _members(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record has of the objects within GitHub's, whose delivery is no longer kept."""
    found: dict[str, Any] = {}
    if isinstance(record.get("labels"), list) and "number" in record:
        found["labels"] = [{"name": name} for name in record["labels"]]
    for member, names in {
        "user": {"id": "user_id", "login": "user_login"},
        "head": {"ref": "head_ref", "sha": "head_sha"},
        "base": {"ref": "base_ref", "sha": "base_sha"},
        "actor": {"login": "actor_login"},
        "triggering_actor": {"login": "triggering_actor_login"},
        "sender": {"login": "sender_login"},
        "pusher": {"name": "pusher_name"},
        "head_commit": {
            "id": "head_commit_id",
            "message": "head_commit_message",
            "timestamp": "head_commit_timestamp",
        },
    }.items():
        if known := {inner: record[column] for inner, column in names.items() if column in record}:
            found[member] = known
    if isinstance(record.get("commits"), list):
        found["commits"] = [{"id": sha} for sha in record["commits"]]
    found["repository"] = {"id": record.get("repository_id"), "full_name": record.get("repo")}
    return found


def copy_delivery_row(export: Export) -> TableCopy:
    """Return the copy of what is known of deliveries, without their bodies."""
    columns = column_types(export.table, without=("id", "body", "codec", "headers", "due_at"))
    return copy_of(export, columns, steady=True)
