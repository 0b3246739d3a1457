"""How does a command use the database? For one look, or one change; a running server may use it at the same time."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from bot.commands import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bot.settings import Settings
    from bot.store import Store, Transaction

T = TypeVar("T")


def look(settings: Settings, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Return what `work` reads; without a database it is an error, and none is made."""

    async def whole() -> T:
        file = settings.data_dir / "ootbot.db"
        if settings.database_url is None and not file.exists():
            raise FileNotFoundError(f"there is no database at {file}: has the bot run here?")
        async with _opened(settings) as store, store.read() as tx:
            return await work(tx)

    return run(whole())


def change(settings: Settings, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Return what `work` returns, once it is committed."""

    async def whole() -> T:
        if settings.database_url is None:
            settings.data_dir.mkdir(parents=True, exist_ok=True)
        async with _opened(settings) as store, store.transaction() as tx:
            return await work(tx)

    return run(whole())


@contextlib.asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Store]:
    from bot.clock import SystemClock  # noqa: PLC0415 - the other commands start without SQLAlchemy
    from bot.store import Store  # noqa: PLC0415 - see above

    store = Store(settings.database, clock=SystemClock())
    try:
        await store.open()
        yield store
    finally:
        await store.close()
