"""A command's use of the database: one read, or one transaction, beside a running server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from bot.console.common import features, run_work
from bot.core.errors import GiveUp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bot.core.settings import Settings
    from bot.db.store import Store
    from bot.db.transaction import Transaction

T = TypeVar("T")


def read_database(settings: Settings, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Return what `work` reads; a missing database is an error, none is made."""

    async def whole() -> T:
        file = settings.data_dir / "ootbot.db"
        if settings.database_url is None and not file.exists():
            raise GiveUp(f"there is no database at {file}: has the bot run here?")
        async with _opened(settings) as store, store.read() as tx:
            return await work(tx)

    return run_work(whole())


def change_database(settings: Settings, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Return what `work` returns, once it is committed."""

    async def whole() -> T:
        if settings.database_url is None:
            settings.data_dir.mkdir(parents=True, exist_ok=True)
        async with _opened(settings) as store, store.transaction() as tx:
            return await work(tx)

    return run_work(whole())


@contextlib.asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Store]:
    from bot.core.clock import SystemClock  # noqa: PLC0415 - the other commands start without SQLAlchemy
    from bot.database import make_store  # noqa: PLC0415 - see above

    store = make_store(settings.database, clock=SystemClock(), features=features(), settings=settings)
    try:
        await store.open()
        yield store
    finally:
        await store.close()
