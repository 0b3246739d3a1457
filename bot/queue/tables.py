"""The table of the task queue and its typed row."""

from __future__ import annotations

from typing import Annotated, TypedDict

import sqlalchemy as sa

from bot.db.columns import partial_index
from bot.db.rows import Big, Bool, Default, Int, Millis, Text, table


class TaskName(TypedDict):
    """Its id, kind and key."""

    id: Big
    kind: Text
    key: Text


class TaskState(TypedDict):
    """Its state."""

    state: Text  # waiting | running | done | dead


class TaskAge(TypedDict):
    """Since when it was requested."""

    created_at: Millis  # time of the first of the merged requests


class TaskDue(TypedDict):
    """When it runs next."""

    due_at: Millis


class TaskAttempts(TypedDict):
    """How often it was tried."""

    attempts: Int


class TaskRun(TypedDict):
    """Its last run."""

    owner: Text | None
    lease_until: Millis | None
    finished_at: Millis | None
    error: Text | None


class TaskCause(TypedDict):
    """What requested it."""

    cause: Text | None  # the delivery or request that first asked for it


class TaskRow(TaskName, TaskState, TaskAge, TaskDue, TaskAttempts, TaskRun, TaskCause):
    """A task."""

    background: Annotated[Bool, Default(sa.false())]  # runs only where nothing else is due


class ClaimedTask(TaskName, TaskAge, TaskAttempts, TaskCause):
    """A task that is to run now."""


task = table("task", TaskRow, key=("id",))
WAITING, RUNNING = task.c.state == "waiting", task.c.state == "running"
partial_index("ux_task_waiting", task.c.kind, task.c.key, where=WAITING, unique=True)
partial_index("ux_task_running", task.c.kind, task.c.key, where=RUNNING, unique=True)
partial_index("ix_task_due", task.c.due_at, where=WAITING)
partial_index("ix_task_due_foreground", task.c.due_at, where=WAITING & (task.c.background == sa.false()))
partial_index("ix_task_dead", task.c.kind, task.c.key, where=task.c.state == "dead")
sa.Index("ix_task_state", task.c.state, task.c.id)
