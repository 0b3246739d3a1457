"""Deliveries of the spool in a backup: they are added to the copy of the database, so that it is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.errors import GiveUp
from bot.db.engines import parse_url
from bot.ingest import spool, spool_reader, spooling

if TYPE_CHECKING:
    import sqlite3

    from bot.ingest.spool import Values


def read_spool(url: str) -> list[Values]:
    """Return the deliveries in the spool of a database, without changing anything; none where it has no spool."""
    database = parse_url(url)
    name = database.database or ""
    if database.get_backend_name() != "sqlite":
        return []
    try:
        return spool_reader.deliveries_waiting(name)
    except OSError as error:
        raise GiveUp(f"{spool.spool_path(name)} cannot be read: {error}") from error


def add_to_copy(rows: list[Values], copy: sqlite3.Connection) -> None:
    """Add deliveries to the copy of a database; those that were moved before it was made are there already."""
    with copy:
        spooling.insert(copy, rows)
