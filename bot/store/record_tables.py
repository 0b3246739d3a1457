"""Which tables hold GitHub's objects? One a record type, made from `domain.records`."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from bot.domain.reading import Kind
from bot.domain.records import TYPES, RecordType
from bot.store.columns import Big, Json, column, metadata, must, partial_index

KINDS: dict[Kind, Any] = {
    Kind.INT: Big,
    Kind.TEXT: sa.Text,
    Kind.BOOL: sa.Boolean,
    Kind.TIME: Big,
    Kind.TEXTS: Json,
    Kind.INTS: Json,
    Kind.JSON: Json,
}


def _record_table(kind: RecordType) -> sa.Table:
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
sa.Index("ix_pull_request_number", records["pull_request"].c.number)
sa.Index("ix_issue_number", records["issue"].c.number)
sa.Index("ix_push_after", records["push"].c.after)
sa.Index("ix_push_guid", records["push"].c.guid)
for _name in ("pull_request", "pull_head", "workflow_job", "check_run"):  # what is there of one commit?
    sa.Index(f"ix_{_name}_head_sha", records[_name].c.head_sha)
OPEN = records["pull_request"].c.state == "open"
partial_index("ix_pull_request_open", records["pull_request"].c.number, where=OPEN)
for _name in ("workflow_run", "workflow_job", "check_run"):  # what reconcile asks GitHub about
    _in_flight = records[_name].c.status != "completed"
    partial_index(f"ix_{_name}_in_flight", records[_name].c.received_at, where=_in_flight)
