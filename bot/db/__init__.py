"""The database: engines, transactions, migrations, notifications, backup."""

from __future__ import annotations
