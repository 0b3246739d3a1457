"""What is to be done next, by whom, and what becomes of it? The task queue: one table, leases, merging by key.

Of one (kind, key) at most one task waits and at most one runs. Whoever asks for a task that waits already joins it.
A crashed process leaves `running` rows behind; their lease ends and they wait again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.clock import JITTER
from bot.errors import AWAY
from bot.store.tables import task

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.store.transaction import Transaction

LEASE = 30_000  # milliseconds; renewed every few seconds while the task runs


@dataclass(kw_only=True)
class Request:
    """A task to be enqueued with a transaction; see `Transaction.enqueue`."""

    kind: str
    key: str
    due_at: int
    patience: int | None = None  # milliseconds a waiting task may be pushed back in all
    cause: str | None = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """A claimed task."""

    id: int
    kind: str
    key: str
    attempts: int  # this run included
    created_at: int
    cause: str | None


async def enqueue(tx: Transaction, requests: Sequence[Request]) -> None:
    """Add tasks, or join those that wait already."""
    insert = tx.insert(task)
    earliest = sa.case((insert.excluded.due_at < task.c.due_at, insert.excluded.due_at), else_=task.c.due_at)
    soon = [_new(tx, request) for request in requests if request.patience is None]
    if soon:
        await tx.run(_joining(insert, earliest), soon)
    latest = task.c.created_at + sa.bindparam("patience", type_=sa.BigInteger)
    pushed = sa.case((insert.excluded.due_at > latest, latest), else_=insert.excluded.due_at)
    for request in requests:
        if request.patience is not None:
            statement = _joining(insert.values(_new(tx, request)), pushed)
            await tx.run(statement, {"patience": request.patience})


def _joining(insert: Any, due_at: Any) -> Any:
    """Return the insert that joins a waiting task of the same key instead, moving it to `due_at`."""
    return insert.on_conflict_do_update(
        index_elements=["kind", "key"], index_where=sa.text("state = 'waiting'"), set_={"due_at": due_at}
    )


def _new(tx: Transaction, request: Request) -> dict[str, Any]:
    return {
        "kind": request.kind,
        "key": request.key,
        "state": "waiting",
        "created_at": tx.now,
        "due_at": request.due_at,
        "attempts": 0,
        "cause": request.cause,
    }


async def begin(tx: Transaction, kinds: Iterable[str]) -> None:
    """Let tasks wait that nobody asks for but the timetable; what waits or runs already, perhaps elsewhere, stays."""
    for kind in kinds:
        there = sa.exists().where(
            task.c.kind == kind, task.c.key == "", task.c.state.in_(("waiting", "running"))
        )
        row = _new(tx, Request(kind=kind, key="", due_at=tx.now))
        values = sa.select(*(sa.literal(value, task.c[name].type) for name, value in row.items())).where(
            ~there
        )
        await tx.run(tx.insert(task).from_select(list(row), values).on_conflict_do_nothing())
    tx.stirred = True


async def claim(tx: Transaction, *, owner: str, limit: int, kinds: Iterable[str]) -> list[Task]:
    """Take up to `limit` tasks of these kinds that are due and whose key does not run already.

    Other kinds are left to the newer version that knows them: two versions may work side by side.
    """
    other = task.alias("other")
    running = sa.exists().where(
        other.c.state == "running", other.c.kind == task.c.kind, other.c.key == task.c.key
    )
    due = (
        sa.select(task.c.id)
        .where(task.c.state == "waiting", task.c.due_at <= tx.now, task.c.kind.in_(sorted(kinds)), ~running)
        .order_by(task.c.due_at, task.c.id)
        .limit(limit)
    )
    if not tx.sqlite:
        due = due.with_for_update(skip_locked=True)
    chosen = due.cte("due")  # PostgreSQL may run a plain subquery twice, and take more than `limit`
    statement = (
        sa.update(task)
        .where(task.c.id.in_(sa.select(chosen.c.id)))
        .values(
            state="running",
            owner=owner,
            lease_until=tx.now + LEASE,
            attempts=task.c.attempts + 1,
            error=None,
        )
        .returning(task.c.id, task.c.kind, task.c.key, task.c.attempts, task.c.created_at, task.c.cause)
    )
    rows = (await tx.run(statement)).mappings().all()
    return [Task(**row) for row in sorted(rows, key=lambda row: row["id"])]


async def finish(tx: Transaction, done: Task) -> bool:
    """A task did what it was asked to; returns False when its lease had run out and another process took it over.

    What was given up of its key is made true as well: nobody need look at it any more.
    """
    ended = await _end(tx, done, state="done", error=None)
    if ended:
        await tx.run(sa.update(task).where(*_given_up(done)).values(state="done"))
    return ended


async def bury(tx: Transaction, dead: Task, error: str) -> None:
    """A task can never succeed: keep it, with why, for a person to look at; one of a key will do, the last."""
    if await _end(tx, dead, state="dead", error=error):
        await tx.run(sa.delete(task).where(*_given_up(dead), task.c.id != dead.id))


async def retry(tx: Transaction, failed: Task, *, due_at: int, error: str, yields: bool = False) -> None:
    """Let a task wait again; one that was asked for again meanwhile takes its place and its patience.

    `yields`: that one waits no longer than it had to.
    """
    again: dict[str, Any] = {"attempts": failed.attempts, "due_at": due_at, "error": error}
    tx.stirred |= due_at <= tx.now
    waiting = (task.c.kind == failed.kind, task.c.key == failed.key, task.c.state == "waiting")
    try:
        async with tx.conn.begin_nested():
            back = again | {"state": "waiting", "owner": None, "lease_until": None}
            await tx.run(sa.update(task).where(*_still(failed)).values(back))
    except sa.exc.IntegrityError:  # one waits already: there may be no two of a key
        if yields:
            again["due_at"] = sa.case((task.c.due_at < due_at, task.c.due_at), else_=due_at)
        await tx.run(sa.update(task).where(*waiting).values(again))
        await _end(tx, failed, state="done", error=error)


async def release(tx: Transaction, *, owner: str | None = None, but: Collection[int] = ()) -> int:
    """Return running tasks to the queue: those of `owner` except some, or all whose lease has ended; how many."""
    if owner is None:
        return await _release(tx, task.c.lease_until < tx.now)
    return await _release(tx, (task.c.owner == owner) & task.c.id.not_in(list(but)))


async def release_all(tx: Transaction) -> int:
    """Return every running task to the queue, for the start of a process that is the only one."""
    return await _release(tx, sa.true())


async def _release(tx: Transaction, mine: sa.ColumnElement[bool]) -> int:
    lost = await tx.rows(sa.select(task).where(task.c.state == "running", mine))
    for row in lost:
        left = Task(**{name: row[name] for name in ("id", "kind", "key", "attempts", "created_at", "cause")})
        await retry(tx, left, due_at=tx.now, error="the process that ran it ended")
    return len(lost)


async def hasten(tx: Transaction, *, most: int | None = None) -> None:
    """Let tasks run now that wait because GitHub was away: all, or so many, check runs first."""
    away = (
        sa.select(task.c.id)
        .where(task.c.state == "waiting", task.c.due_at > tx.now, task.c.error.startswith(AWAY))
        .order_by(task.c.kind != "publish", task.c.due_at, task.c.id)
        .limit(most)
    )
    tx.stirred = True
    await tx.run(sa.update(task).where(task.c.id.in_(away)).values(due_at=tx.now))


async def hasten_postdated(tx: Transaction) -> None:
    """Let tasks run now that were made while the clock was ahead: when they are due was reckoned from there."""
    ahead = task.c.created_at > tx.now + JITTER
    postdated = (task.c.state == "waiting", task.c.due_at > tx.now, ahead)
    await tx.run(sa.update(task).where(*postdated).values(due_at=tx.now))


async def renew(tx: Transaction, *, owner: str) -> None:
    """Keep the leases of what this process still runs."""
    mine = (task.c.state == "running", task.c.owner == owner)
    await tx.run(sa.update(task).where(*mine).values(lease_until=tx.now + LEASE))


async def _end(tx: Transaction, ended: Task, *, state: str, error: str | None) -> bool:
    done = await tx.run(
        sa.update(task)
        .where(*_still(ended))
        .values(state=state, error=error, finished_at=tx.now, owner=None, lease_until=None)
    )
    return bool(done.rowcount)


def _given_up(one: Task) -> tuple[sa.ColumnElement[bool], ...]:
    return task.c.kind == one.kind, task.c.key == one.key, task.c.state == "dead"


def _still(claimed: Task) -> tuple[sa.ColumnElement[bool], ...]:
    """Whether this very run goes on: a process that lost its lease has no say in the next one."""
    return task.c.id == claimed.id, task.c.state == "running", task.c.attempts == claimed.attempts
