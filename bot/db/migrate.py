"""Schema migrations: Alembic run from code, in one transaction; and which versions may share a schema."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
import structlog

from bot.core.errors import Misconfigured
from bot.db.rows import metadata

if TYPE_CHECKING:
    from bot.db.statements import Engine

FOLDER = Path(__file__).parent / "migrations"
VERSION = sa.table("alembic_version", sa.column("version_num"))
DEADLOCK = "40P01"  # PostgreSQL's SQLSTATE
WAITS = (0.2, 0.5, 1.0, 2.0, 4.0)  # seconds between attempts
ANSWER_WITHIN = 24 * 60 * 60.0  # seconds: one statement may rewrite a large table
STARTUP_LOCK = 0x006F6F74  # an arbitrary constant: processes that start together migrate one by one

schema_support = sa.Table(  # one row
    "schema_support",
    metadata,
    sa.Column("oldest", sa.Text, primary_key=True),  # the head of the oldest program that may use the schema
)

log = structlog.get_logger("bot.db.migrate")


async def bring_up_to_date(engine: Engine) -> None:
    """Bring the schema up to date; see `upgrade`.

    A migration locks tables in another order than running processes do: when PostgreSQL aborts it as a deadlock,
    nothing of it was done, and it is tried again.
    """
    for wait in (*WAITS, None):
        try:
            async with engine.connect(answer_within=ANSWER_WITHIN) as conn:
                await conn.run_sync(upgrade)
        except sa.exc.DBAPIError as error:
            if wait is None or getattr(error.orig, "sqlstate", None) != DEADLOCK:
                raise
            log.warning("the migration ran into a deadlock; trying again", seconds=wait)
            await asyncio.sleep(wait)
        else:
            return


def upgrade(conn: sa.Connection) -> None:
    """Apply the missing migrations; a database of a newer version is left as it is.

    Raises Misconfigured when this version cannot use that newer schema.
    """
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({STARTUP_LOCK})")
    stored = version(conn)
    if stored is not None and is_newer(stored):
        _require_support(conn, stored)
        log.warning("the database is of a newer version; sharing it", database=stored, program=head())
    elif stored != head():
        _migrate(conn)
    conn.commit()


def version(conn: sa.Connection) -> str | None:
    """Return the revision of the database, None when it is new."""
    if not sa.inspect(conn).has_table(VERSION.name):
        return None
    stored: str | None = conn.execute(sa.select(VERSION)).scalar()
    return stored


def is_newer(stored: str) -> bool:
    """Whether a database at this revision was migrated by a newer version than this one."""
    return stored > head()


def supports(conn: sa.Connection) -> bool:
    """Whether this version may use a newer database."""
    oldest = conn.execute(sa.select(schema_support.c.oldest)).scalar()
    return oldest is not None and oldest <= head()


def head() -> str:
    """Return the revision this code needs: four digits, each greater than the one before."""
    return max(path.name for path in (FOLDER / "versions").glob("[0-9]*.py")).partition("_")[0]


def _require_support(conn: sa.Connection, stored: str) -> None:
    if not supports(conn):
        problem = (
            f"the database is at version {stored}, and this program, which knows {head()}, cannot work with it: "
            "run the newer ootbot, or restore a backup made before the upgrade"
        )
        raise Misconfigured([problem])


def _migrate(conn: sa.Connection) -> None:
    """Apply missing migrations. Alembic is imported here: most starts have none to apply and are faster without it."""
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = conn
    command.upgrade(config, "head")
