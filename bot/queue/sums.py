"""Daily sums: tables of what rows of a day add up to, each counted again by the task `sum` once a row changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from bot.core.errors import RetryLater
from bot.core.feature import load
from bot.queue.tasks import task as task_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

KIND = "sum"
DAY = 86_400_000  # milliseconds
UNCOUNTED = ("waiting", "running", "dead")  # states of a task whose day is not counted, or may change
TASK = task_table.c
# one query a state: each has an index of its own
PENDING = sa.union_all(
    *(
        sa.select(TASK.key, TASK.created_at).where(
            TASK.kind == KIND, TASK.state == state, TASK.key.startswith(sa.bindparam("prefix"))
        )
        for state in UNCOUNTED
    )
)
CountedSum = dict[sa.Table, "Sequence[Mapping[str, Any]]"]


class SumPlace(NamedTuple):
    """A day of a group: what is counted at once."""

    group: tuple[Any, ...]  # values of the columns that the sum names
    day: int  # days since 1970, UTC


@dataclass(frozen=True, kw_only=True)
class Sum:
    """Tables of a daily sum, and how a day of them is counted. `Feature.sums` lists those of a capability."""

    name: str
    tables: tuple[sa.Table, ...]  # each has the columns `day` and those of the group
    group: tuple[str, ...]  # columns; the value of the last alone may contain a slash
    # both as module:attribute. async (context, place): returns the rows of a day without day and group, None where
    # nothing is to be changed
    count: str
    after: str = ""  # async (tx, place): in the transaction that writes them
    delay: float = 0  # seconds from a change to the count: further changes in between are counted with it
    pause: float = 0  # seconds after a count in which its process does not count the same day again
    # rows are deleted as records are: what is left of an old day must not replace its sum
    pruned: bool = True


def request(tx: Transaction, what: Sum, places: Iterable[SumPlace]) -> None:
    """Request a recount of days once this transaction is committed."""
    for place in places:
        tx.enqueue(KIND, _key(what, place), delay=what.delay, replayed=True)


async def recount_place(context: Context, task: Task) -> float:
    """Count a day of a sum (key: name, day and group, by `/`) from its rows, and replace what is stored of it."""
    name, _, _ = task.key.partition("/")
    what = _find(context, name)
    place = _place(what, task.key)
    if what.pruned and place.day <= context.clock.now() // DAY - context.settings.record_retention_days:
        return what.pause
    counted = await load(what.count)(context, place)
    if counted is not None:
        async with context.store.transaction() as tx:
            await write(tx, what, place, counted)
    return what.pause


async def write(tx: Transaction, what: Sum, place: SumPlace, counted: CountedSum) -> None:
    """Replace what is stored of a day."""
    key = {**dict(zip(what.group, place.group, strict=True)), "day": place.day}
    for table in what.tables:
        await tx.run(sa.delete(table).where(*(table.c[name] == value for name, value in key.items())))
        if rows := counted.get(table):
            await tx.run(sa.insert(table), [{**key, **row} for row in rows])
    if what.after:
        await load(what.after)(tx, place)


async def pending(tx: Transaction, what: Sum) -> dict[SumPlace, int]:
    """Return the days that wait for a recount, each with the time of its first uncounted change."""
    since: dict[SumPlace, int] = {}
    for key, at in await tx.run(PENDING, {"prefix": f"{what.name}/"}):
        place = _place(what, key)
        since[place] = min(at, since.get(place, at))
    return since


async def counted_until(tx: Transaction, what: Sum, within: Collection[Any], *, first: int = 0) -> int | None:
    """Return the time up to which changes of days from `first` on are counted, for pages; None if all are.

    `within` has values of the first column of the group.
    """
    since = await pending(tx, what)
    return min(
        (at for place, at in since.items() if place.day >= first and place.group[0] in within), default=None
    )


def _find(context: Context, name: str) -> Sum:
    for feature in context.features:
        for reference in feature.sums:
            declared: Sum = load(reference)
            if declared.name == name:
                return declared
    raise RetryLater(f"this version has no sum {name!r}; another may")


def _key(what: Sum, place: SumPlace) -> str:
    return "/".join(map(str, (what.name, place.day, *place.group)))


def _place(what: Sum, key: str) -> SumPlace:
    """Return what a task's key names; its values have the types of their columns."""
    _, day, *values = key.split("/", 1 + len(what.group))
    columns = (what.tables[0].c[name] for name in what.group)
    group = (column.type.python_type(value) for column, value in zip(columns, values, strict=True))
    return SumPlace(tuple(group), int(day))
