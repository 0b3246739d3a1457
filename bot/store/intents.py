"""Who is making what at GitHub? An intent comes before each thing made that GitHub would make twice.

An intent lasts longer than the call it announces: whoever finds one that is not settled, because a process died, lost
its lease or got no answer, waits until nobody can be at it any more, then looks for what was made before making it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.errors import RetryLater
from bot.store.pull_tables import oot_check, oot_comment

if TYPE_CHECKING:
    from bot.store.transaction import Transaction

Row = dict[str, Any]
CALL = 45.0  # seconds after which a call that makes something is given up
LASTS = 75_000  # milliseconds: a call, and what GitHub may still do with one that was given up
LOST = 10_000  # milliseconds after which GitHub ends whatever it is at


@dataclass(frozen=True, kw_only=True)
class Intent:
    """What this process alone may make now."""

    table: sa.Table
    key: tuple[Any, ...]
    until: int  # epoch milliseconds; tells this intent from every later one
    fresh: bool  # nobody meant to make it before: it need not be looked for
    lost_until: int = 0  # epoch milliseconds: until then GitHub may still make what it was asked for before


async def begin(tx: Transaction, table: sa.Table, row: Row) -> Intent:
    """Say that something is about to be made; raises RetryLater while another process may be making it."""
    key = tuple(row[column.name] for column in table.primary_key)
    until = tx.now + LASTS
    insert = tx.insert(table).values(row | {"writing_until": until, "lost_until": 0}).on_conflict_do_nothing()
    if (await tx.run(insert)).rowcount:
        return Intent(table=table, key=key, until=until, fresh=True)
    free = (*_is(table, key), table.c.writing_until <= tx.now)
    mine = sa.update(table).where(*free).values(writing_until=until).returning(table.c.lost_until)
    lost_until = (await tx.run(mine)).scalar()
    if lost_until is None:
        held = (await tx.run(sa.select(table.c.writing_until).where(*_is(table, key)))).scalar_one()
        raise RetryLater(f"another process is making {' '.join(map(str, key))}", after=(held - tx.now) / 1000)
    return Intent(table=table, key=key, until=until, fresh=False, lost_until=lost_until)


async def end(tx: Transaction, intent: Intent) -> None:
    """Say that a call is over, whatever came of it; an intent that somebody else has begun since goes on."""
    await tx.run(sa.update(intent.table).where(*_mine(intent)).values(writing_until=0))


async def lose(tx: Transaction, intent: Intent) -> None:
    """Say that a call will never be answered, although GitHub may still be at it."""
    lost = {"writing_until": 0, "lost_until": tx.now + LOST}
    await tx.run(sa.update(intent.table).where(*_mine(intent)).values(lost))


async def lose_all(tx: Transaction) -> None:
    """Say so of every call under way, for the start of a process that is the only one."""
    for table in (oot_check, oot_comment):
        lost = {"writing_until": 0, "lost_until": tx.now + LOST}
        await tx.run(sa.update(table).where(table.c.writing_until > tx.now).values(lost))


def _mine(intent: Intent) -> list[sa.ColumnElement[bool]]:
    return [*_is(intent.table, intent.key), intent.table.c.writing_until == intent.until]


def _is(table: sa.Table, key: tuple[Any, ...]) -> list[sa.ColumnElement[bool]]:
    return [column == value for column, value in zip(table.primary_key, key, strict=True)]
