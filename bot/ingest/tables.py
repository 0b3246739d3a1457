"""Tables of deliveries, repository names and sweeps, and one table per record type, made from `records`."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from bot.core.json_fields import Kind
from bot.db.columns import Big, Json, column, metadata, must, partial_index
from bot.ingest.records import TYPES, RecordType

KINDS: dict[Kind, Any] = {
    Kind.INT: Big,
    Kind.TEXT: sa.Text,
    Kind.BOOL: sa.Boolean,
    Kind.TIME: Big,
    Kind.TEXTS: Json,
    Kind.INTS: Json,
    Kind.JSON: Json,
}

delivery = sa.Table(
    "delivery",
    metadata,
    sa.Column("id", Big, primary_key=True),
    must("guid", sa.Text, unique=True),
    must("event", sa.Text),
    column("action", sa.Text),
    column("repo", sa.Text),
    column("repository_id", Big),
    column("installation_id", Big),  # recorded, never used for access
    column("app_id", Big),  # X-GitHub-Hook-Installation-Target-ID
    must("source", sa.Text),  # webhook | api | pull
    must("received_at", Big),
    must("state", sa.Text),  # stored | handled | ignored | foreign | parked
    must("attempts", sa.Integer, server_default="0"),
    must("due_at", Big),
    column("error", sa.Text),
    column("headers", sa.Text),  # JSON of those worth storing; never a signature
    column("codec", sa.Text),  # zstd, zlib; null: the body is as received
    must("body", sa.LargeBinary),
)
partial_index("ix_delivery_pending", delivery.c.due_at, where=delivery.c.state == "stored")
sa.Index("ix_delivery_received_at", delivery.c.received_at)
partial_index("ix_delivery_parked", delivery.c.id, where=delivery.c.state == "parked")

repository_name = sa.Table(
    "repository_name",
    metadata,
    must("repository_id", Big),
    must("name", sa.Text),  # case folded; every name it has had
    sa.PrimaryKeyConstraint("repository_id", "name", name="pk_repository_name"),
    sa.Index("ix_repository_name_name", "name"),
)

pinned_repository = sa.Table(
    "pinned_repository",
    metadata,
    must("name", sa.Text),  # case folded; of the settings
    must("repository_id", Big),
    must("pinned_at", Big),
    sa.PrimaryKeyConstraint("name", name="pk_pinned_repository"),
)

sweep = sa.Table(
    "sweep",
    metadata,
    must("app_id", Big),  # 0 where no App is concerned
    must("name", sa.Text),  # what is swept: redeliver, reconcile, records, ...
    must("created_at", Big),
    column("tried_at", Big),  # when the first try since the last complete one began
    column("reached", Big),  # everything before has been read
    column("finished_at", Big),  # the last complete one
    must("found", Big),
    sa.PrimaryKeyConstraint("app_id", "name", name="pk_sweep"),
)

missed_delivery = sa.Table(
    "missed_delivery",
    metadata,
    must("app_id", Big),
    must("guid", sa.Text),
    must("log_id", Big),  # GitHub's id of one attempt, used to request it again
    must("event", sa.Text),
    column("repository_id", Big),  # none where it is about an account
    must("delivered_at", Big),
    must("asks", sa.Integer),
    must("asked_at", Big),
    must("lost", sa.Boolean),  # GitHub's log no longer has it
    sa.PrimaryKeyConstraint("app_id", "guid", name="pk_missed_delivery"),
)


def _record_table(kind: RecordType[Any]) -> sa.Table:
    columns = [must("repository_id", Big), must("repo", sa.Text), must("received_at", Big)]
    if "guid" in kind.key:
        columns.append(must("guid", sa.Text))
    columns += [
        column(kept.name, KINDS[kept.kind], nullable=kept.name not in kind.key) for kept in kind.columns
    ]
    columns += [column("deleted_at", Big), must("merge_state", Json)]
    table = sa.Table(kind.table, metadata, *columns)
    table.append_constraint(sa.PrimaryKeyConstraint("repository_id", *kind.key, name=f"pk_{kind.table}"))
    sa.Index(f"ix_{kind.table}_repo", sa.func.lower(table.c.repo), table.c[kind.key[0]])
    return table


records = {name: _record_table(kind) for name, kind in TYPES.items()}
sa.Index("ix_workflow_run_id", records["workflow_run"].c.id)
sa.Index("ix_workflow_job_run", records["workflow_job"].c.run_id, records["workflow_job"].c.repository_id)
sa.Index("ix_workflow_run_received_at", records["workflow_run"].c.received_at)
sa.Index("ix_pull_request_number", records["pull_request"].c.number)
sa.Index("ix_issue_number", records["issue"].c.number)
sa.Index("ix_pull_label_event_number", records["pull_label_event"].c.pull_request_number)
sa.Index("ix_push_after", records["push"].c.after)
sa.Index("ix_push_guid", records["push"].c.guid)
for _name in ("pull_request", "pull_head", "workflow_run", "workflow_job", "check_run"):  # by commit
    sa.Index(f"ix_{_name}_head_sha", records[_name].c.head_sha)
OPEN = records["pull_request"].c.state == "open"
partial_index("ix_pull_request_open", records["pull_request"].c.number, where=OPEN)
for _name in ("workflow_run", "workflow_job", "check_run"):  # what reconcile looks up
    _in_flight = records[_name].c.status != "completed"
    partial_index(f"ix_{_name}_in_flight", records[_name].c.received_at, where=_in_flight)
