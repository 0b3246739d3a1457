"""What has each installation used of what GitHub allows it? One row each, which all processes and restarts share."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.domain.ledger import Ledger
from bot.store.installation_tables import oot_budget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bot.store.store import Store
    from bot.store.transaction import Transaction

B = oot_budget.c


class SharedBooks:
    """The ledgers of one App in the database; see `bot.pace.Books`."""

    def __init__(self, store: Store, app_id: int) -> None:
        self._store = store
        self._app_id = app_id

    @contextlib.asynccontextmanager
    async def open(self, who: str) -> AsyncIterator[Ledger]:
        """Hand out a ledger; its row is locked until what has changed in it is committed."""
        async with self._store.transaction() as tx:
            ledger = await self._locked(tx, who)
            before = asdict(ledger)
            yield ledger
            after = asdict(ledger)
            if after != before:
                await tx.run(sa.update(oot_budget).where(*self._row(who)).values(after))

    async def blocked_until(self, who: str) -> int:
        """Return until when GitHub wants no calls, epoch milliseconds."""
        async with self._store.read() as tx:
            row = await tx.row(sa.select(B.blocked_until).where(*self._row(who)))
        return row["blocked_until"] if row else 0

    async def all(self) -> dict[str, Ledger]:
        """Return every ledger by account."""
        async with self._store.read() as tx:
            rows = await tx.rows(sa.select(oot_budget).where(B.app_id == self._app_id))
        return {row["account"]: _ledger(row) for row in rows}

    async def _locked(self, tx: Transaction, who: str) -> Ledger:
        # on SQLite the lock is not said: whoever writes there is the only one anyway
        query = sa.select(oot_budget).where(*self._row(who)).with_for_update()
        row = await tx.row(query)
        if row is None:
            new = {"app_id": self._app_id, "account": who, **asdict(Ledger())}
            await tx.run(tx.insert(oot_budget).values(new).on_conflict_do_nothing())
            row = await tx.row(query)
        assert row is not None
        return _ledger(row)

    def _row(self, who: str) -> tuple[sa.ColumnElement[bool], ...]:
        return B.app_id == self._app_id, B.account == who


def _ledger(row: dict[str, Any]) -> Ledger:
    return Ledger(**{name: value for name, value in row.items() if name not in {"app_id", "account"}})
