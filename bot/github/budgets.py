"""Rate budgets in the database: one row for each installation, shared by all processes and kept over restarts."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.db.columns import Big, Json, metadata
from bot.db.columns import must as _must
from bot.github.rate_budget import RateBudget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bot.db.store import Store
    from bot.db.transaction import Transaction

oot_budget = sa.Table(
    "oot_budget",
    metadata,
    _must("app_id", Big),
    _must("account", sa.Text),  # whose installation; app: the App itself
    _must("next_write", Big),  # the earliest time of the write after those reserved
    _must("blocked_until", Big),  # GitHub asked for it
    _must("pressed_until", Big),  # until then gates and verdicts take precedence
    # times of the last hour: a sliding hour needs every single one
    _must("creations", Json),
    _must("dispatches", Json),  # times of the last minute
    sa.PrimaryKeyConstraint("app_id", "account", name="pk_oot_budget"),
)


class BudgetRow(TypedDict):
    """A rate budget; times are epoch milliseconds."""

    app_id: int
    account: str
    next_write: int
    blocked_until: int
    pressed_until: int
    creations: list[int]
    dispatches: list[int]


class SharedBudgets:
    """The budgets of one App in the database; see `bot.github.rate_limiter.Budgets`."""

    def __init__(self, store: Store, app_id: int) -> None:
        self._store = store
        self._app_id = app_id

    @contextlib.asynccontextmanager
    async def open(self, account: str) -> AsyncIterator[RateBudget]:
        """Yield a budget; its row is locked until the changes are committed."""
        async with self._store.transaction() as tx:
            budget = await self._locked(tx, account)
            before = _values(budget)
            yield budget
            after = _values(budget)
            if after != before:
                await tx.run(sa.update(oot_budget).where(*self._is(account)).values(after))

    async def blocked_until(self, account: str) -> int:
        """Return until when GitHub wants no calls, epoch milliseconds."""
        async with self._store.read() as tx:
            found = await tx.run(sa.select(oot_budget.c.blocked_until).where(*self._is(account)))
            return found.scalar() or 0

    async def all(self) -> dict[str, RateBudget]:
        """Return every budget by account."""
        async with self._store.read() as tx:
            rows = await tx.rows_as(
                BudgetRow, sa.select(oot_budget).where(oot_budget.c.app_id == self._app_id)
            )
        return {row["account"]: _budget(row) for row in rows}

    async def _locked(self, tx: Transaction, account: str) -> RateBudget:
        # SQLite ignores FOR UPDATE: a writer there is the only one anyway
        query = sa.select(oot_budget).where(*self._is(account)).with_for_update()
        row = await tx.row_as(BudgetRow, query)
        if row is None:
            new = {"app_id": self._app_id, "account": account, **_values(RateBudget())}
            await tx.run(tx.insert(oot_budget).values(new).on_conflict_do_nothing())
            row = await tx.row_as(BudgetRow, query)
        assert row is not None
        return _budget(row)

    def _is(self, account: str) -> tuple[sa.ColumnElement[bool], ...]:
        return oot_budget.c.app_id == self._app_id, oot_budget.c.account == account


def _budget(row: BudgetRow) -> RateBudget:
    return RateBudget(
        next_write=row["next_write"],
        blocked_until=row["blocked_until"],
        precedence_until=row["pressed_until"],
        creations=row["creations"],
        dispatches=row["dispatches"],
    )


def _values(budget: RateBudget) -> dict[str, object]:
    """Return the columns of a budget; its lists are copied, so that changes to them show."""
    return {
        "next_write": budget.next_write,
        "blocked_until": budget.blocked_until,
        "pressed_until": budget.precedence_until,
        "creations": [*budget.creations],
        "dispatches": [*budget.dispatches],
    }
