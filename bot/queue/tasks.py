"""The task queue: one table, leases, merging by key."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import sqlalchemy as sa

from bot.core.clock import JITTER
from bot.core.errors import GITHUB_UNAVAILABLE
from bot.db.rows import Big, Bool, Default, Int, Millis, Text, partial_index, select, table, unindexed
from bot.db.statements import Statement, literal_word
from bot.db.transaction import TaskRequest, insert_into

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.db.transaction import Changed, Transaction

BACKOFF = (1, 5, 15, 60, 120, 300, 600)  # seconds
MAX_ATTEMPTS = 12  # of a task that fails for an unknown reason: about an hour
LEASE = 30_000  # milliseconds; renewed every few seconds while the task runs
_ENDED: dict[str, Any] = {"finished_at": sa.bindparam("now"), "owner": None, "lease_until": None}
DUE: sa.BindParameter[int] = sa.bindparam("due", type_=sa.BigInteger)
AGAIN: dict[str, Any] = {"attempts": sa.bindparam("tried"), "due_at": DUE, "error": sa.bindparam("because")}


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
SAME_RUN = (  # still: a process that lost its lease must not end the next run
    task.c.id == sa.bindparam("of_id"),
    task.c.state == literal_word("running"),
    task.c.attempts == sa.bindparam("of_attempt"),
)
DEAD_OF_KEY = (
    task.c.kind == sa.bindparam("of_kind"),
    task.c.key == sa.bindparam("of_key"),
    task.c.state == literal_word("dead"),
)
END = Statement(
    sa.update(task)
    .where(*SAME_RUN)
    .values(state=sa.bindparam("ended_as"), error=sa.bindparam("because"), **_ENDED)
)
FINISH = Statement(
    sa.update(task)
    .where(
        task.c.id.in_(sa.bindparam("ids", expanding=True)),  # found by it: SQLite has no index for pairs
        sa.tuple_(task.c.id, task.c.attempts).in_(sa.bindparam("runs", expanding=True)),
        task.c.state == literal_word("running"),
    )
    .values(state="done", error=None, **_ENDED)
    .returning(task.c.id)
)
WAIT_AGAIN = Statement(
    sa.update(task).where(*SAME_RUN).values(state="waiting", owner=None, lease_until=None, **AGAIN)
)
WAITING_OF_KEY = (
    task.c.kind == sa.bindparam("of_kind"),
    task.c.key == sa.bindparam("of_key"),
    task.c.state == literal_word("waiting"),
)
JOIN_WAITING = Statement(sa.update(task).where(*WAITING_OF_KEY).values(AGAIN))
EARLIER = sa.case((task.c.due_at < DUE, task.c.due_at), else_=DUE)
JOIN_UNDELAYED = Statement(sa.update(task).where(*WAITING_OF_KEY).values(AGAIN | {"due_at": EARLIER}))
CLOSE_DEAD = Statement(
    sa.update(task)
    .where(
        task.c.state == literal_word("dead"),
        task.c.kind.in_(sa.bindparam("kinds", expanding=True)),
        task.c.key.in_(sa.bindparam("keys", expanding=True)),
        sa.tuple_(task.c.kind, task.c.key).in_(sa.bindparam("both", expanding=True)),
    )
    .values(state="done")
)
CLAIMED = select(ClaimedTask, task)


class Task:
    """A claimed task."""

    __slots__ = ("_row",)

    def __init__(self, row: ClaimedTask) -> None:
        self._row = row

    @property
    def id(self) -> int:
        """Its id."""
        return self._row["id"]

    @property
    def kind(self) -> str:
        """What is to be done."""
        return self._row["kind"]

    @property
    def key(self) -> str:
        """What it is done to."""
        return self._row["key"]

    @property
    def created_at(self) -> int:
        """When it was first requested, epoch milliseconds."""
        return self._row["created_at"]

    @property
    def attempts(self) -> int:
        """How often it was tried, this run included."""
        return self._row["attempts"]

    @property
    def cause(self) -> str | None:
        """The delivery or request that first asked for it."""
        return self._row["cause"]


async def write_requests(
    tx: Transaction, _changed: Changed, *, background: Collection[str] = frozenset()
) -> None:
    """Write the requested tasks: the last hook before a commit. Kinds of the `background` yield to all others."""
    if requests := tx.take_requests():
        await enqueue(tx, requests, background=background)


async def enqueue(
    tx: Transaction, requests: Sequence[TaskRequest], *, background: Collection[str] = frozenset()
) -> None:
    """Add tasks, or join those that wait already."""
    rows = {request: _new(tx, request, background=request.kind in background) for request in requests}
    if plain := [row for request, row in rows.items() if request.max_wait is None]:
        await tx.run(_upsert(sqlite=tx.sqlite, postpones=False), plain)
    for request, row in rows.items():
        if request.max_wait is not None:
            await tx.run(_upsert(sqlite=tx.sqlite, postpones=True), row | {"max_wait": request.max_wait})


async def ensure_periodic(tx: Transaction, kinds: Iterable[str]) -> None:
    """Enqueue each periodic kind, unless a task of it waits or runs already, perhaps in another process."""
    for kind in kinds:
        active = task.c.state.in_(("waiting", "running"))
        exists = sa.exists().where(task.c.kind == kind, task.c.key == "", active)
        row = _new(tx, TaskRequest(kind=kind, key="", due_at=tx.now))
        values = sa.select(*(sa.literal(value, task.c[name].type) for name, value in row.items()))
        await tx.run(tx.insert(task).from_select(list(row), values.where(~exists)).on_conflict_do_nothing())
    tx.wakes_workers = True


def name_of(claimed: Task) -> str:
    """Return the name that tells this kind and key from all others."""
    return f"{claimed.kind} {claimed.key}"


async def claim(
    tx: Transaction,
    *,
    owner: str,
    limit: int,
    kinds: Iterable[str],
    background: bool = False,
    paused: Sequence[str] = (),
) -> list[Task]:
    """Claim up to `limit` due tasks of these kinds whose key is not running, of the background or the others.

    Other kinds are left to the newer version that knows them: two versions may share a database. Those
    `paused`, by name, are left for later.
    """
    values = {
        "now": tx.now,
        "kinds": sorted(kinds),
        "paused": [*paused],
        "most": limit,
        "by": owner,
        "until": tx.now + LEASE,
    }
    rows = await tx.rows_as(ClaimedTask, _claiming(sqlite=tx.sqlite, background=background), values)
    return [Task(row) for row in sorted(rows, key=lambda row: row["id"])]


async def finish(tx: Transaction, done: Sequence[Task]) -> set[int]:
    """Mark tasks as done; returns the ids without those whose lease had expired and that another process took over.

    Their success also closes dead tasks of the same keys: the operator need not look at them any more.
    """
    runs = {task_done.id: task_done for task_done in done}
    if not runs:
        return set()
    mine = {"now": tx.now, "ids": [*runs], "runs": [(task_done.id, task_done.attempts) for task_done in done]}
    ended = set((await tx.run(FINISH, mine)).scalars())
    both = sorted({(runs[number].kind, runs[number].key) for number in ended})
    if both:
        kinds, keys = zip(*both, strict=True)
        await tx.run(CLOSE_DEAD, {"kinds": sorted({*kinds}), "keys": sorted({*keys}), "both": both})
    return ended


async def give_up(tx: Transaction, failed: Task, error: str) -> None:
    """Keep a task that can never succeed as dead, with the reason, for the operator; only the last of a key is kept."""
    if await _end(tx, failed, state="dead", error=error):
        others = sa.delete(task).where(*DEAD_OF_KEY, task.c.id != failed.id)
        await tx.run(others, {"of_kind": failed.kind, "of_key": failed.key})


async def retry(tx: Transaction, failed: Task, *, due_at: int, error: str, yields: bool = False) -> None:
    """Let a task wait again; a request for the same key that came meanwhile takes its place and its delay.

    With `yields` that request is not delayed any further.
    """
    again = {"tried": failed.attempts, "due": due_at, "because": error}
    tx.wakes_workers |= due_at <= tx.now
    try:
        async with tx.attempt():
            await tx.run(WAIT_AGAIN, again | {"of_id": failed.id, "of_attempt": failed.attempts})
    except sa.exc.IntegrityError:  # one of its key waits already
        of_key = {"of_kind": failed.kind, "of_key": failed.key}
        await tx.run(JOIN_UNDELAYED if yields else JOIN_WAITING, again | of_key)
        await _end(tx, failed, state="done", error=error)


async def release(tx: Transaction, *, owner: str | None = None, but: Collection[int] = ()) -> int:
    """Return running tasks to the queue: those of `owner` except some, or all with an expired lease; how many."""
    if owner is None:
        return await _release(tx, task.c.lease_until < tx.now)
    return await _release(tx, (task.c.owner == owner) & task.c.id.not_in(list(but)))


async def release_all(tx: Transaction) -> int:
    """Return every running task to the queue: for the start of the only process."""
    return await _release(tx, sa.true())


async def wake_after_outage(tx: Transaction, *, most: int | None = None) -> None:
    """Make tasks due that wait because GitHub was unavailable: all, or `most`, check runs first."""
    waiting = (
        sa.select(task.c.id)
        .where(task.c.state == "waiting", task.c.due_at > tx.now, task.c.error.startswith(GITHUB_UNAVAILABLE))
        .order_by(task.c.kind != "publish", task.c.due_at, task.c.id)
        .limit(most)
    )
    tx.wakes_workers = True
    await tx.run(sa.update(task).where(task.c.id.in_(waiting)).values(due_at=tx.now))


async def wake_postdated(tx: Transaction) -> None:
    """Make tasks due that were created while the clock was ahead: their due time was computed from it."""
    ahead = task.c.created_at > tx.now + JITTER
    postdated = (task.c.state == "waiting", task.c.due_at > tx.now, ahead)
    await tx.run(sa.update(task).where(*postdated).values(due_at=tx.now))


async def renew(tx: Transaction, *, owner: str) -> None:
    """Renew the leases of what this process still runs."""
    mine = (task.c.state == "running", task.c.owner == owner)
    await tx.run(sa.update(task).where(*mine).values(lease_until=tx.now + LEASE))


def backoff(attempts: int) -> int:
    """Return the milliseconds to wait after that many attempts (from 1)."""
    return BACKOFF[min(max(attempts, 1), len(BACKOFF)) - 1] * 1000


def retry_delay(attempts: int, *, after: float | None, periodic: bool) -> int:
    """Return the milliseconds until a task is retried: `after` seconds where that is known.

    A periodic task waits no longer than the last step: one account's wait must not delay the others.
    """
    known = backoff(attempts) if after is None else max(round(after * 1000), 1)
    return min(known, BACKOFF[-1] * 1000) if periodic else known


@functools.cache
def _upsert(*, sqlite: bool, postpones: bool) -> Statement:
    """Return the insert that moves a waiting task of the same key to an earlier time, or postpones it, instead."""
    insert = insert_into(task, sqlite=sqlite)
    due_at = insert.excluded.due_at
    latest = task.c.created_at + sa.bindparam("max_wait", type_=sa.BigInteger)
    postponed = sa.case((due_at > latest, latest), else_=due_at)
    earliest = sa.case((due_at < task.c.due_at, due_at), else_=task.c.due_at)
    return Statement(
        insert.on_conflict_do_update(
            index_elements=["kind", "key"],
            index_where=sa.text("state = 'waiting'"),
            set_={"due_at": postponed if postpones else earliest},
        )
    )


def _new(tx: Transaction, request: TaskRequest, *, background: bool = False) -> dict[str, Any]:
    return {
        "kind": request.kind,
        "key": request.key,
        "state": "waiting",
        "created_at": tx.now,
        "due_at": request.due_at,
        "attempts": 0,
        "cause": request.cause,
        "background": background,
    }


@functools.cache
def _claiming(*, sqlite: bool, background: bool) -> Statement:
    """Return the statement that claims tasks; it is built once, since it runs all the time."""
    other = task.alias("other")
    running = sa.exists().where(
        other.c.state == literal_word("running"), other.c.kind == task.c.kind, other.c.key == task.c.key
    )
    # without the hint SQLite looks at everything that waits, even thousands of tasks that are not due
    waiting = task.c.state == literal_word("waiting")
    due = (
        sa.select(task.c.id)
        .where(
            sa.func.likely(waiting) if sqlite else waiting,
            task.c.background == (sa.true() if background else sa.false()),
            task.c.due_at <= sa.bindparam("now"),
            unindexed(task.c.kind).in_(sa.bindparam("kinds", expanding=True)),
            (task.c.kind + " " + task.c.key).not_in(sa.bindparam("paused", expanding=True)),
            ~running,
        )
        .order_by(task.c.due_at, task.c.id)
        .limit(sa.bindparam("most", type_=sa.Integer))
    )
    if not sqlite:
        due = due.with_for_update(skip_locked=True)
    chosen = due.cte("due")  # PostgreSQL may run a plain subquery twice, and take more than `limit`
    return Statement(
        sa.update(task)
        .where(task.c.id.in_(sa.select(chosen.c.id)))
        .values(
            state="running",
            owner=sa.bindparam("by"),
            lease_until=sa.bindparam("until"),
            attempts=task.c.attempts + 1,
            error=None,
        )
        .returning(*CLAIMED.selected_columns)
    )


async def _release(tx: Transaction, mine: sa.ColumnElement[bool]) -> int:
    lost = await tx.fetch(CLAIMED.where(task.c.state == "running", mine))
    for row in lost:
        await retry(tx, Task(row), due_at=tx.now, error="the process that ran it ended")
    return len(lost)


async def _end(tx: Transaction, ended: Task, *, state: str, error: str | None) -> bool:
    values = {"now": tx.now, "ended_as": state, "because": error}
    done = await tx.run(END, values | {"of_id": ended.id, "of_attempt": ended.attempts})
    return bool(done.rowcount)
