"""The PostgreSQL server at DATABASE_URL: how it is connected to, and what is found out about it first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.core.database_url import read_address
from bot.core.errors import GiveUp, Misconfigured
from bot.db import connection_watchdog, db_errors

if TYPE_CHECKING:
    import sqlalchemy as sa

# what a pooler passes on is another server process than it says it is
EXAMINE = "SELECT pg_backend_pid(), getdatabaseencoding(), current_database()"


class PostgresServer:
    """Where a server is; `pooled` once it turned out that a pooler, such as PgBouncer, stands before it."""

    def __init__(self, text: str, url: sa.URL) -> None:
        self._address = read_address(text)
        self._timeout = self._address.connect_timeout or connection_watchdog.CONNECT_TIMEOUT
        self._url = url  # for messages
        self._examined = False
        self.pooled = False

    def arguments(self) -> dict[str, Any]:
        """Return how SQLAlchemy's driver connects.

        Of a pooler each transaction may get another server process, which knows no statements that were prepared
        before: there statements have no names, and are prepared each time.
        """
        found = self._arguments()
        if self.pooled:
            unnamed: dict[str, Any] = {
                "statement_cache_size": 0,
                "prepared_statement_cache_size": 0,
                "prepared_statement_name_func": lambda: "",
            }
            found |= unnamed
        return found

    async def examine(self) -> None:
        """Connect once, and find out what stands there.

        Raises Misconfigured where the database cannot hold all text, StoreUnavailable where it cannot be used.
        """
        if self._examined:
            return
        import asyncpg  # noqa: PLC0415 - an extra

        try:
            connection = await asyncpg.connect(**self._arguments(), statement_cache_size=0)
            try:
                process, encoding, database = await connection.fetchrow(
                    EXAMINE, timeout=connection_watchdog.REQUEST_TIMEOUT
                )
                self.pooled = process != connection.get_server_pid()
            finally:
                connection.terminate()
        except TimeoutError as error:
            waited = TimeoutError(f"no answer for {self._timeout:g} s")
            raise db_errors.unavailable(self._url, waited) from error
        except PermissionError as error:
            raise GiveUp(_unreadable(error)) from error
        except KeyError as error:
            raise Misconfigured([_nameless()]) from error
        except (
            OSError,
            ValueError,
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
        ) as error:
            raise db_errors.unavailable(self._url, error) from error
        if encoding != "UTF8":
            raise Misconfigured([_wrong_encoding(database, encoding)])
        self._examined = True

    def _arguments(self) -> dict[str, Any]:
        return {"dsn": self._address.url, "timeout": self._timeout}


def _wrong_encoding(database: str, encoding: str) -> str:
    return (
        f"the database {database} is in {encoding}, which cannot hold all text that GitHub sends: make another one by "
        f"`createdb --encoding=UTF8 --template=template0 NAME`, and name that in OOTBOT_DATABASE_URL"
    )


def _unreadable(error: PermissionError) -> str:
    return (
        f"this user may not read {error.filename}, where PostgreSQL's password and keys may be: "
        "set HOME to a folder of this user"
    )


def _nameless() -> str:
    return "this user has no name on this machine: put PostgreSQL's user into OOTBOT_DATABASE_URL"
