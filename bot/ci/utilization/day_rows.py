"""Rows of sums by day and week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.utilization.sums import Key, Sums, keys_of
from bot.ci.utilization.tables import utilization_day

if TYPE_CHECKING:
    from bot.ci.utilization.rows import JobRow
    from bot.db.transaction import Transaction

D = utilization_day.c


async def replace(tx: Transaction, before: JobRow | None, after: JobRow | None) -> None:
    """Take away what a job added as it was, and add what it adds as it is."""
    changes: dict[Key, list[tuple[int, JobRow]]] = {}
    for sign, row in ((-1, before), (1, after)):
        for key in keys_of(row):
            assert row
            changes.setdefault(key, []).append((sign, row))
    for key in sorted(changes):  # in one order, so that no two transactions wait for one another
        found = await _held(tx, key)
        for sign, row in changes[key]:
            found = found + Sums.of_job(row) if sign > 0 else found - Sums.of_job(row)
        await _write(tx, key, found)


async def _held(tx: Transaction, key: Key) -> Sums:
    """Return the sums of a group, which nobody else changes before this transaction ends."""
    blank = key._asdict() | Sums().as_row()
    await tx.run(tx.insert(utilization_day).values(blank).on_conflict_do_nothing())
    query = sa.select(utilization_day).where(*_is(key))
    row = await tx.row(query if tx.sqlite else query.with_for_update())
    assert row
    return Sums.of_row(row)


async def _write(tx: Transaction, key: Key, sums: Sums) -> None:
    if sums.jobs:
        await tx.run(sa.update(utilization_day).where(*_is(key)).values(sums.as_row()))
    else:
        await tx.run(sa.delete(utilization_day).where(*_is(key)))


def _is(key: Key) -> list[sa.ColumnElement[bool]]:
    values: dict[str, Any] = key._asdict()
    return [D[name] == value for name, value in values.items()]
