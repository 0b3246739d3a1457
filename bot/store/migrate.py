"""How does the schema get up to date? Alembic, run from code at every start, in one transaction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

if TYPE_CHECKING:
    import sqlalchemy as sa

FOLDER = Path(__file__).parent / "migrations"
STARTUP_LOCK = 0x006F6F74  # any constant of our own: processes that start together migrate one by one


def upgrade(conn: sa.Connection) -> None:
    """Apply the migrations the database has not seen."""
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({STARTUP_LOCK})")
    if version(conn) != head():
        command.upgrade(_config(conn), "head")
    conn.commit()


def version(conn: sa.Connection) -> str | None:
    """Return the revision the database is at, None when it is new."""
    return MigrationContext.configure(conn).get_current_revision()


def head() -> str | None:
    """Return the revision this code needs."""
    return ScriptDirectory.from_config(_config(None)).get_current_head()


def _config(conn: sa.Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = conn
    return config
