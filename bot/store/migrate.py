"""How does the schema get up to date, and which versions may share it? Alembic, run from code, in one transaction.

Migrations add: the version before goes on working with what they leave, also while they run. One that it would not
survive says so in `schema_support`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
import structlog

from bot.errors import Misconfigured
from bot.store.installation_tables import schema_support

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

FOLDER = Path(__file__).parent / "migrations"
VERSION = sa.table("alembic_version", sa.column("version_num"))
DEADLOCK = "40P01"  # PostgreSQL's SQLSTATE
WAITS = (0.2, 0.5, 1.0, 2.0, 4.0)  # seconds between two tries
STARTUP_LOCK = 0x006F6F74  # any constant of our own: processes that start together migrate one by one

log = structlog.get_logger("bot.store.migrate")


async def bring_up_to_date(engine: AsyncEngine) -> None:
    """Bring the schema up to date; see `upgrade`.

    A migration locks tables that those who go on working have locked in another order: where PostgreSQL ends it for
    that, nothing of it was done, and it is tried again.
    """
    for wait in (*WAITS, None):
        try:
            async with engine.connect() as conn:
                await conn.run_sync(upgrade)
        except sa.exc.DBAPIError as error:
            if wait is None or getattr(error.orig, "sqlstate", None) != DEADLOCK:
                raise
            log.warning("the migration and others waited for one another; once more", seconds=wait)
            await asyncio.sleep(wait)
        else:
            return


def upgrade(conn: sa.Connection) -> None:
    """Apply the migrations the database has not seen; one that has seen later ones is left as it is.

    Raises Misconfigured when those later ones leave no room for this version.
    """
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({STARTUP_LOCK})")
    found = version(conn)
    if found is not None and is_newer(found):
        _require_support(conn, found)
        log.warning("the database is of a newer version; working beside it", database=found, program=head())
    elif found != head():
        _migrate(conn)
    conn.commit()


def version(conn: sa.Connection) -> str | None:
    """Return the revision the database is at, None when it is new."""
    if not sa.inspect(conn).has_table(VERSION.name):
        return None
    found: str | None = conn.execute(sa.select(VERSION)).scalar()
    return found


def is_newer(found: str) -> bool:
    """Whether a database at this revision was migrated by a later version than this one."""
    return found > head()


def supports(conn: sa.Connection) -> bool:
    """Whether this version may work with a database that is newer."""
    oldest = conn.execute(sa.select(schema_support.c.oldest)).scalar()
    return oldest is not None and oldest <= head()


def head() -> str:
    """Return the revision this code needs: four digits, each greater than the one before."""
    return max(path.name for path in (FOLDER / "versions").glob("[0-9]*.py")).partition("_")[0]


def _require_support(conn: sa.Connection, found: str) -> None:
    if not supports(conn):
        problem = (
            f"the database is at version {found}, and this program, which knows {head()}, cannot work with it: "
            "run the newer ootbot, or restore a backup made before the upgrade"
        )
        raise Misconfigured([problem])


def _migrate(conn: sa.Connection) -> None:
    """Apply what is missing. Alembic is read only here: most starts find nothing to do, and are sooner without it."""
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = conn
    command.upgrade(config, "head")
