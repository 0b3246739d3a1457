"""Where everything is kept: one database, SQLite or PostgreSQL, through one code path."""

from __future__ import annotations

from bot.store.hearing import ASKED
from bot.store.intake import PATIENCE
from bot.store.store import Store
from bot.store.transaction import Transaction

__all__ = ["ASKED", "PATIENCE", "Store", "Transaction"]
