"""Alembic's entry: runs on the connection it is handed (see bot/db/migrate.py)."""

from __future__ import annotations

from alembic import context

from bot.db.rows import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
