"""What sinks may have copies of: deliveries and records, as objects, items and rows of upstream's tables."""

from __future__ import annotations

import asyncio
import hashlib
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from bot.core.json_fields import Unreadable, decode
from bot.db.exports import (
    COPIED,
    ColumnTable,
    Export,
    ListedObject,
    Shape,
    StoredItem,
    StoredObject,
    TableCopy,
    column_types,
    copy_of,
    json_line,
    object_key,
    read_rows,
    repo_key,
)
from bot.ingest import inbox
from bot.ingest.inbox import decompress_body
from bot.ingest.retention import ENDED
from bot.ingest.tables import TYPES, WORKFLOW_RUN, DeliveryEvent, DeliveryTime, delivery, records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.db.exports import ExportedRow, RowKey
    from bot.db.transaction import Transaction

LARGEST = 4 * 1024 * 1024  # bytes of a body as stored; of a larger one the record has to do
ARCHIVE, MANIFESTS = "raw", "raw/manifest"
METADATA = frozenset({"event", "action", "repo", "sha256"})
LATEST_ONLY = frozenset({"workflow_job", "workflow_run"})  # events whose newest object has a key of its own
OURS = frozenset({"merge_state", "source"})  # columns that are no part of what GitHub says
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
UPSTREAM_COLUMNS: dict[str, dict[str, str]] = {
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
UPSTREAM_NAMES = {
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
MATERIALIZED_VIEWS = {
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
# records that upstream has
MAPPED = frozenset(name for name in TYPES if UPSTREAM_NAMES.get(name, name) in UPSTREAM_COLUMNS)
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
DELIVERIES = "deliveries"
SOURCES = 200  # records read at once with the deliveries they came with
# a repository within a body, outside its texts: there quotes are escaped
PRIVATE = re.compile(rb'(?<!\\)"private"\s*:\s*true')


class ManifestLine(DeliveryEvent, DeliveryTime):
    """What a manifest says of an archived delivery: all that its body does not."""

    key: str
    action: str | None
    repo: str | None
    sha256: str  # of the body


_LINE = msgspec.json.Decoder(ManifestLine)


async def read_with_source(
    tx: Transaction, export: Export, keys: Sequence[RowKey]
) -> dict[RowKey, ExportedRow]:
    """Return records, each with the body it came with as `source`, None once that is deleted."""
    rows = await read_rows(tx, export, keys)
    if export.name == WORKFLOW_RUN.table:
        rows = await _newest_attempts(tx, rows)
    guids = sorted({row["merge_state"]["guid"] for row in rows.values()})
    query = sa.select(delivery.c.guid, delivery.c.codec, delivery.c.body).where(
        delivery.c.guid.in_(guids), sa.func.length(delivery.c.body) <= LARGEST
    )
    sources = {row.guid: (row.body, row.codec) for row in await tx.run(query)}
    return {key: {**row, "source": sources.get(row["merge_state"]["guid"])} for key, row in rows.items()}


def source_payload(row: ExportedRow) -> dict[str, Any] | None:
    """Return the object that a record came with, None once it is deleted."""
    body = source_body(row)
    try:
        payload = None if body is None else decode(body)
    except Unreadable:
        return None
    return payload if isinstance(payload, dict) else None


def source_body(row: ExportedRow) -> bytes | None:
    """Return the body that a record came with, as it was received."""
    return None if row["source"] is None else decompress_body(*row["source"])


def archive_delivery(_export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return a delivery as the archive keeps it: its body byte by byte, in a folder by day and event."""
    body: bytes = row["body"]
    at = datetime.fromtimestamp(row["received_at"] / 1000, UTC)
    day = f"{at:%Y/%m/%d}"
    line: ManifestLine = {
        "key": f"{ARCHIVE}/{day}/{object_key(row['event'], row['guid'])}.json.gz",
        "guid": row["guid"],
        "event": row["event"],
        "action": row["action"],
        "repo": row["repo"],
        "received_at": row["received_at"],
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    metadata = {name: str(value or "") for name, value in line.items() if name in METADATA}
    return [
        StoredObject(
            key=line["key"],
            content=lambda: (body,),
            metadata=metadata | {"received-at": str(line["received_at"])},
            immutable=True,
            listed=ListedObject(manifest=f"{MANIFESTS}/{day}/{at:%H}", line=msgspec.json.encode(line)),
        )
    ]


def copy_delivery(_export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return a delivery's body under upstream's key, with its GUID in place of a random one."""
    body: bytes = row["body"]
    prefix = "full_" if row["event"] in LATEST_ONLY else ""
    key = object_key(f"{prefix}{row['event']}", row["guid"])
    return [StoredObject(key=key, content=lambda: (body,), immutable=True)]


def copy_object(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return GitHub's newest object of a record, or the record's own fields once its delivery is deleted."""
    kind = TYPES[export.name]
    folders = [export.name, repo_key(row["repo"])] if row["repo"] else [export.name]
    names = (row[part] for part in kind.key if part != "run_attempt")  # of a run the newest attempt is sent
    key = "/".join((*folders, object_key(*names)))
    return [StoredObject(key=key, content=lambda: (json_line(newest_object(row, kind.at)),))]


def newest_object(row: ExportedRow, at: str) -> dict[str, Any]:
    """Return GitHub's object of a record, the member `at` of its delivery; else the record's fields and `_partial`."""
    payload = source_payload(row)
    sent = payload.get(at) if at and payload else payload
    if isinstance(sent, dict):
        return sent
    return {name: value for name, value in row.items() if name not in OURS} | {"_partial": True}


def read_manifest(lines: Iterable[bytes]) -> list[ManifestLine]:
    """Return the lines of a part of a manifest; raises msgspec.DecodeError where it is damaged."""
    return [_LINE.decode(line) for line in lines if line.strip()]


def upstream_key(export: str, row: ExportedRow) -> str:
    """Return the key of a record in upstream's tables; of a push its delivery, where upstream takes a random one."""
    if "guid" in row:
        return str(row["guid"])
    return f"{row['repo']}/{row['number' if export in BY_NUMBER else 'id']}"


def copy_record(export: Export) -> TableCopy:
    """Return the copy of a record in upstream's table."""
    name = UPSTREAM_NAMES.get(export.name, export.name)
    at = TYPES[export.name].at

    def key_values(_key: RowKey, row: ExportedRow | None) -> tuple[str] | None:
        return None if row is None else (upstream_key(export.name, row),)

    def rows(row: ExportedRow) -> Iterable[Mapping[str, Any]]:
        sent = newest_object(row, at)
        if "_partial" in sent:
            sent = sent | _members(sent)
        added = {name: row[name] for name in ADDED if name in row}
        return ({**sent, **added, "dynamoKey": upstream_key(export.name, row)},)

    return TableCopy(
        table=ColumnTable(
            name=f"default.{name}",
            columns={"dynamoKey": TEXTS, **UPSTREAM_COLUMNS[name]},
            order=ORDERS.get(name, ("id", "dynamoKey")),
            computed=COMPUTED.get(name, {}),
            views=MATERIALIZED_VIEWS.get(name, {}),
            open=True,
        ),
        rows=rows,
        key=("dynamoKey",),
        key_values=key_values,
    )


def copy_delivery_row(export: Export) -> TableCopy:
    """Return the copy of deliveries' rows, without their bodies."""
    columns = column_types(export.table, without=("id", "body", "codec", "headers", "due_at"))
    return copy_of(export, columns, steady=True)


def copy_item(export: Export, row: ExportedRow) -> list[StoredItem]:
    """Return the item of a record: GitHub's object."""
    table = ITEM_TABLES[export.name]
    if export.name in LABEL_EVENTS:
        return [_label_event(table, LABEL_EVENTS[export.name], row)]
    sent = newest_object(row, TYPES[export.name].at)
    return [StoredItem(table=table, key=_item_key(export.name, row, sent), attributes=sent)]


async def find_private(_context: Context, rows: Mapping[RowKey, ExportedRow]) -> dict[RowKey, ExportedRow]:
    """Add to deliveries whether they mention a private repository: for some of them no record says so."""
    return await asyncio.to_thread(lambda: {key: _with_body(row) for key, row in rows.items()})


def _with_bodies(make: str) -> Shape:
    return Shape(make=f"bot.ingest.exports:{make}", load="bot.ingest.exports:find_private", most=SOURCES)


def _with_source(make: str) -> Shape:
    return Shape(make=make, read="bot.ingest.exports:read_with_source", most=SOURCES)


def _record_shapes(name: str) -> dict[str, Shape]:
    shapes = {
        "upstream": _with_source("bot.ingest.exports:copy_object"),
        "clickhouse.ootbot": COPIED,
    }
    if name in MAPPED:
        shapes["clickhouse.upstream"] = _with_source("bot.ingest.exports:copy_record")
    if name in ITEM_TABLES:
        shapes["dynamodb"] = _with_source("bot.ingest.exports:copy_item")
    return shapes


EXPORTS = (
    Export(
        name=DELIVERIES,
        table=delivery,
        key=("guid",),
        day="received_at",
        condition=delivery.c.state.in_(ENDED) & (delivery.c.state != "foreign"),
        shapes={
            "raw": _with_bodies("archive_delivery"),
            "upstream": _with_bodies("copy_delivery"),
            "clickhouse.ootbot": Shape(
                make="bot.ingest.exports:copy_delivery_row",
                load="bot.ingest.exports:find_private",
                most=SOURCES,
            ),
        },
    ),
    *(
        Export(
            name=name,
            group="records",
            table=table,
            day="received_at",
            deleted="deleted_at",
            shapes=_record_shapes(name),
        )
        for name, table in records.items()
    ),
)


async def _newest_attempts(tx: Transaction, rows: dict[RowKey, ExportedRow]) -> dict[RowKey, ExportedRow]:
    """Return runs without their superseded attempts: all attempts of a run are one object."""
    c = records[WORKFLOW_RUN.table].c
    ids = sorted({row["id"] for row in rows.values()})
    query = sa.select(c.repository_id, c.id, sa.func.max(c.run_attempt)).where(c.id.in_(ids))
    newest = {tuple(row) for row in await tx.run(query.group_by(c.repository_id, c.id))}
    return {key: row for key, row in rows.items() if key in newest}


def _members(record: Mapping[str, Any]) -> dict[str, Any]:
    """Rebuild the nested objects of GitHub's object from a record whose delivery is deleted."""
    members: dict[str, Any] = {}
    if isinstance(record.get("labels"), list) and "number" in record:
        members["labels"] = [{"name": name} for name in record["labels"]]
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
            members[member] = known
    if isinstance(record.get("commits"), list):
        members["commits"] = [{"id": sha} for sha in record["commits"]]
    members["repository"] = {"id": record.get("repository_id"), "full_name": record.get("repo")}
    return members


def _item_key(name: str, row: ExportedRow, sent: object) -> str:
    issue = row.get("issue_url") if name == "issue_comment" else None
    if isinstance(issue, str) and isinstance(sent, dict):
        return f"{row['repo']}/{issue.rpartition('/')[2]}/{row['id']}"
    return upstream_key(name, row)


def _label_event(table: str, subject: str, row: ExportedRow) -> StoredItem:
    """Return a label that was added or removed; upstream's key has no time, so only the last event remains."""
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


def _with_body(row: ExportedRow) -> dict[str, Any]:
    body = inbox.decompress_body(row["body"], row["codec"])
    return {**row, "body": body, "codec": None, "private": PRIVATE.search(body) is not None}
