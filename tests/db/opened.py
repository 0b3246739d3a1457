"""Databases of a test's own."""

import contextlib

from bot.database import make_store
from bot.features import FEATURES
from bot.ingest.intake import Intake


def url_of(database_url, folder) -> str:
    """The database's URL; None is SQLite in `folder`."""
    return database_url or f"sqlite:///{folder / 'ootbot.db'}"


@contextlib.asynccontextmanager
async def opened(url, clock, **options):
    """A store on that database, up to date."""
    store = make_store(url, clock=clock, features=FEATURES, **options)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def opened_intake(store):
    """What stores deliveries in a store, many to a commit."""
    intake = Intake(store)
    try:
        yield intake
    finally:
        await intake.close()
