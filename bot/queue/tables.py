"""The table of the task queue and its typed row."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.columns import Big, metadata, partial_index
from bot.db.columns import column as _column
from bot.db.columns import must as _must

task = sa.Table(
    "task",
    metadata,
    sa.Column("id", Big, primary_key=True),
    _must("kind", sa.Text),
    _must("key", sa.Text),
    _must("state", sa.Text),  # waiting | running | done | dead
    _must("created_at", Big),  # time of the first of the merged requests
    _must("due_at", Big),
    _must("attempts", sa.Integer),
    _column("owner", sa.Text),
    _column("lease_until", Big),
    _column("finished_at", Big),
    _column("error", sa.Text),
    _column("cause", sa.Text),  # the delivery or request that first asked for it
    _must("background", sa.Boolean, server_default=sa.false()),  # runs only where nothing else is due
)


WAITING, RUNNING = task.c.state == "waiting", task.c.state == "running"
partial_index("ux_task_waiting", task.c.kind, task.c.key, where=WAITING, unique=True)
partial_index("ux_task_running", task.c.kind, task.c.key, where=RUNNING, unique=True)
partial_index("ix_task_due", task.c.due_at, where=WAITING)
partial_index("ix_task_due_foreground", task.c.due_at, where=WAITING & (task.c.background == sa.false()))
partial_index("ix_task_dead", task.c.kind, task.c.key, where=task.c.state == "dead")
sa.Index("ix_task_state", task.c.state, task.c.id)


class TaskRow(TypedDict):
    """A task; times are epoch milliseconds."""

    id: int
    kind: str
    key: str
    state: str
    created_at: int
    due_at: int
    attempts: int
    owner: str | None
    lease_until: int | None
    finished_at: int | None
    error: str | None
    cause: str | None
    background: bool
