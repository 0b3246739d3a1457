"""How does a test open a database of its own?"""

from __future__ import annotations

import contextlib

from bot.store import Store


def url_of(database_url, folder) -> str:
    """The database's URL; None is SQLite in `folder`."""
    return database_url or f"sqlite:///{folder / 'ootbot.db'}"


@contextlib.asynccontextmanager
async def opened(url, clock, **options):
    """A store on that database, up to date."""
    store = Store(url, clock=clock, **options)
    try:
        await store.open()
        yield store
    finally:
        await store.close()
