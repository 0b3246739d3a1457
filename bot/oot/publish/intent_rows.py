"""Intents to create objects at GitHub, in the rows of what is created: taken by one process at a time.

An intent is recorded before the call and lasts longer than it. The process that finds one that was never ended waits
until no call can still be in progress.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.core.errors import RetryLater
from bot.db.statements import Statement
from bot.db.transaction import insert_into
from bot.oot.publish.tables import oot_check, oot_comment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.db.transaction import Transaction

INTENT_LASTS = 75_000  # milliseconds: the calls, and the time GitHub may still work on one that timed out
GITHUB_TIMEOUT = 10_000  # milliseconds after which GitHub ends any request


@dataclass(frozen=True, kw_only=True)
class Intent:
    """The right of this process alone to create an object now."""

    table: sa.Table
    key: tuple[Any, ...]
    until: int  # epoch milliseconds; identifies this intent among later ones
    fresh: bool  # the first intent for this object: there is nothing to look for
    lost_until: int = 0  # epoch milliseconds: until then GitHub may still be executing an unanswered request


async def begin_intent(tx: Transaction, table: sa.Table, row: Mapping[str, object]) -> Intent:
    """Record that an object is about to be created; raises RetryLater while another process may be creating it."""
    key = tuple(row[column.name] for column in table.primary_key)
    until = tx.now + INTENT_LASTS
    values = {**row, "writing_until": until, "lost_until": 0}
    if (await tx.run(_insert(table, sqlite=tx.sqlite), values)).rowcount:
        return Intent(table=table, key=key, until=until, fresh=True)
    lost_until = (await tx.run(_take(table), _named(table, key) | {"until": until, "now": tx.now})).scalar()
    if lost_until is None:
        holder = sa.select(table.c.writing_until).where(*_of_key(table))
        held = (await tx.run(holder, _named(table, key))).scalar_one()
        raise RetryLater(f"another process is making {' '.join(map(str, key))}", after=(held - tx.now) / 1000)
    return Intent(table=table, key=key, until=until, fresh=False, lost_until=lost_until)


async def lose_all_intents(tx: Transaction, tables: Sequence[sa.Table] = (oot_check, oot_comment)) -> None:
    """Record that every call in progress will stay unanswered: for the start of a process that is the only one."""
    for table in tables:
        lost = {"writing_until": 0, "lost_until": tx.now + GITHUB_TIMEOUT}
        await tx.run(sa.update(table).where(table.c.writing_until > tx.now).values(lost))


async def end_intent(tx: Transaction, intent: Intent) -> None:
    """Record that a call is over, whatever its outcome; a later intent of another process stays."""
    await tx.run(_change(intent.table), _mine(intent) | {"writing_until": 0})


async def lose_intent(tx: Transaction, intent: Intent) -> None:
    """Record that a call will stay unanswered although GitHub may still be executing it."""
    lost = {"writing_until": 0, "lost_until": tx.now + GITHUB_TIMEOUT}
    await tx.run(_change(intent.table), _mine(intent) | lost)


@functools.cache
def _insert(table: sa.Table, *, sqlite: bool) -> Statement:
    """Return the statement that adds a row unless it is there; putting one together takes longer than running it."""
    return Statement(insert_into(table, sqlite=sqlite).on_conflict_do_nothing())


@functools.cache
def _change(table: sa.Table) -> Statement:
    """Return the statement that changes the row of an intent, given as `_mine` does, beside the columns to change."""
    return Statement(
        sa.update(table).where(*_of_key(table), table.c.writing_until == sa.bindparam("of_until"))
    )


@functools.cache
def _take(table: sa.Table) -> Statement:
    """Return the statement that records an intent in a row that no process holds at `now`; `_named` gives its key."""
    free = table.c.writing_until <= sa.bindparam("now")
    taken = sa.update(table).where(*_of_key(table), free).values(writing_until=sa.bindparam("until"))
    return Statement(taken.returning(table.c.lost_until))


def _of_key(table: sa.Table) -> list[sa.ColumnElement[bool]]:
    return [column == sa.bindparam(f"of_{column.name}") for column in table.primary_key]


def _mine(intent: Intent) -> dict[str, Any]:
    return _named(intent.table, intent.key) | {"of_until": intent.until}


def _named(table: sa.Table, key: tuple[Any, ...]) -> dict[str, Any]:
    return {f"of_{column.name}": value for column, value in zip(table.primary_key, key, strict=True)}
