"""Databases for tests: SQLite files copied from a template, PostgreSQL databases emptied and used again."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass

import asyncpg

LONGEST = 60.0  # seconds of a statement: it would wait for ever for somebody who holds a lock
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
SEQUENCES = "SELECT sequencename, start_value, last_value FROM pg_sequences WHERE schemaname = 'public'"
CONNECTED = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
# whatever changes a definition leaves rows of the catalog that are new
DEFINITIONS = """
SELECT md5(string_agg(named, ',' ORDER BY named)) FROM (
    SELECT concat_ws(' ', oid, relname, relkind, reloptions) AS named FROM pg_class
        WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT concat_ws(' ', attrelid, attname, pg_attribute.xmin)
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT concat_ws(' ', setdatabase, setconfig) FROM pg_db_role_setting
) AS found"""


class PostgresDatabases:
    """The databases of one server: one is made when none is free, and is free again after the test.

    Making one takes a tenth of a second of processor time, putting back its rows a hundredth.
    """

    def __init__(self, server):
        self._server = server
        self._made = 0
        self._free = []
        self._definitions = {}  # by name, as they were at first

    def url(self, name):
        return self._server.replace("/postgres?", f"/{name}?")

    async def create(self, name, template="template1"):
        """Create a database and return its URL."""
        async with connected(self._server) as conn:
            await conn.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    async def take(self, content):
        """Return the name of a copy of the database `migrated` with these rows, which nobody else uses."""
        while self._free:
            name = self._free.pop()
            if await self._put_back(name, content):
                return name
        name = f"t{self._made}"
        self._made += 1
        async with connected(await self.create(name, "migrated")) as conn:
            self._definitions[name] = await conn.fetchval(DEFINITIONS)
            await fill(conn, content)
        return name

    def give_back(self, name):
        self._free.append(name)

    async def _put_back(self, name, content):
        """Put the rows back; returns False where a test has changed more than rows."""
        try:
            async with connected(self.url(name)) as conn:
                await conn.execute(f"SELECT pg_terminate_backend(pid, 5000) {CONNECTED}")
                if await conn.fetchval(DEFINITIONS) != self._definitions[name]:
                    return False
                await fill(conn, content)
        except asyncpg.PostgresError:
            return False
        return True


@dataclass(frozen=True)
class Content:
    """The rows of a database: what is put back before it is used again."""

    tables: dict[str, bytes]  # in COPY's format, of those that are not empty
    sequences: list[tuple]


async def content(url):
    """Return the rows of a database."""
    async with connected(url) as conn:
        tables = {}
        for name in await _filled(conn):
            rows = io.BytesIO()
            await conn.copy_from_table(name, output=rows)
            tables[name] = rows.getvalue()
        return Content(tables, [tuple(row) for row in await conn.fetch(SEQUENCES)])


async def fill(conn, content):
    """Make these the database's rows."""
    for name in await _filled(conn):
        await conn.execute(f'DELETE FROM "{name}"')
    for name, rows in content.tables.items():
        await conn.copy_to_table(name, source=io.BytesIO(rows))
    for name, start, last in content.sequences:
        await conn.execute("SELECT setval($1::text::regclass, $2, $3)", name, last or start, last is not None)


async def _filled(conn):
    """Return the names of the tables that have rows."""
    names = [row[0] for row in await conn.fetch(TABLES)]
    asked = " UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT FROM \"{name}\")" for name in names)
    return [row[0] for row in await conn.fetch(asked)] if names else []


@contextlib.asynccontextmanager
async def connected(url):
    conn = await asyncpg.connect(url, command_timeout=LONGEST)
    try:
        yield conn
    finally:
        await conn.close()
