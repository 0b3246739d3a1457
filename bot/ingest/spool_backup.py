"""Deliveries of the spool in a backup: they are added to the copy of the database, so that it is complete."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

from sqlalchemy.engine import make_url

from bot.core.errors import GiveUp
from bot.ingest import spool, spooling

if TYPE_CHECKING:
    from bot.ingest.spool import Values


def read(url: str) -> list[Values]:
    """Return the deliveries in the spool of a database, without changing anything; none where it has no spool."""
    database = make_url(url)
    path = spool.path_of(database.database or "")
    if database.get_backend_name() != "sqlite" or not path.exists():
        return []
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
            parts = file.execute("SELECT data FROM spooled ORDER BY id")
            return [row for (data,) in parts for row in spool.unpack(data)]
    except sqlite3.Error as error:
        raise GiveUp(f"{path} cannot be read: {error}") from error


def add(rows: list[Values], copy: sqlite3.Connection) -> None:
    """Add deliveries to the copy of a database; those that were moved before it was made are there already."""
    with copy:
        spooling.insert(copy, rows)
