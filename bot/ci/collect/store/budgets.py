"""Statements about the read budgets of accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.collect.tables import BudgetRow, ci_budget
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

SAME_ACCOUNT = ci_budget.c.account == sa.bindparam("of_account")
LOCKED = RowStatement(select(BudgetRow, ci_budget).where(SAME_ACCOUNT).with_for_update())
STORE = Statement(sa.update(ci_budget).where(SAME_ACCOUNT))


async def all_budgets(tx: Transaction) -> list[BudgetRow]:
    """Return the budgets of all accounts."""
    return await tx.fetch(select(BudgetRow, ci_budget))


async def lock_budget(tx: Transaction, new: BudgetRow) -> BudgetRow:
    """Return an account's budget, locked until the transaction ends; where it has none, it gets the new one."""
    account = {"of_account": new["account"]}
    if (row := await tx.fetch_first(LOCKED, account)) is not None:
        return row
    await tx.upsert(ci_budget, [new])
    (row,) = await tx.fetch(LOCKED, account)
    return row


async def store_budget(tx: Transaction, row: BudgetRow) -> None:
    """Store an account's budget."""
    values = {name: row[name] for name in ("calls", "bytes", "at", "minutes")}
    await tx.run(STORE, values | {"of_account": row["account"]})
