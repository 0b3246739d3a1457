"""Tables on the server: the statements that make them, and whether those that are there will do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.sinks.clickhouse.column_types import family_of, plain
from bot.sinks.driver import Stopped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.core.column_tables import ColumnTable
    from bot.sinks.clickhouse.clickhouse_client import ClickhouseClient
    from bot.sinks.clickhouse.options import ClickhouseOptions

COLUMNS = """SELECT name, type FROM system.columns
WHERE database = {database:String} AND table = {name:String} AND default_kind IN ('', 'DEFAULT') ORDER BY position"""


def quoted(name: str) -> str:
    """Return a name as it stands in a statement."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def place_of(table: ColumnTable, options: ClickhouseOptions) -> tuple[str, str]:
    """Return the database and the name of a table."""
    database, dot, name = table.name.rpartition(".")
    return (database if dot else options.database, name)


def full_name(table: ColumnTable, options: ClickhouseOptions) -> str:
    """Return a table's name as it stands in a statement."""
    return ".".join(map(quoted, place_of(table, options)))


def ddl_of(table: ColumnTable, options: ClickhouseOptions) -> list[str]:
    """Return the statements that make a table, and a view of what is true now where it has versions."""
    database, name = place_of(table, options)
    declared = {**table.all_columns, **table.computed}
    columns = ",\n".join(f"  {quoted(one)} {kind}" for one, kind in declared.items())
    lines = [
        f"CREATE TABLE IF NOT EXISTS {full_name(table, options)} (\n{columns}\n)",
        f"ENGINE = {_engine(table)}",
    ]
    if table.day:
        lines.append(f"PARTITION BY toYYYYMM({quoted(table.day)})")
    lines.append(f"ORDER BY ({', '.join(map(quoted, table.order))})")
    if table.versioned and table.time and options.keep_days:
        time = quoted(table.time)
        if family_of(table.columns[table.time]) == "time" and "Nullable" in table.columns[table.time]:
            time = f"ifNull({time}, toDateTime64(0, 3))"
        lines.append(f"TTL toDateTime({time}) + INTERVAL {options.keep_days} DAY")
    found = [f"CREATE DATABASE IF NOT EXISTS {quoted(database)}", "\n".join(lines)]
    if table.versioned:
        view = f"{quoted(database)}.{quoted(f'v_{name}')}"
        rows = f"SELECT * EXCEPT (_version, _deleted) FROM {full_name(table, options)} FINAL"  # noqa: S608 - names are ours
        found.append(f"CREATE VIEW IF NOT EXISTS {view} AS {rows}")
    return found + [
        one for view, names in table.views.items() for one in _view_of(table, options, view, names)
    ]


def _view_of(table: ColumnTable, options: ClickhouseOptions, view: str, names: Iterable[str]) -> list[str]:
    database, name = view.split(".")
    listed = ", ".join(map(quoted, names))
    rows = f"SELECT {listed} FROM {full_name(table, options)}"  # noqa: S608 - names are ours
    return [
        f"CREATE DATABASE IF NOT EXISTS {quoted(database)}",
        f"CREATE VIEW IF NOT EXISTS {quoted(database)}.{quoted(name)} AS {rows}",
    ]


def _engine(table: ColumnTable) -> str:
    if table.versioned:
        return "ReplacingMergeTree(_version, _deleted)"
    return "ReplacingMergeTree" if table.replaces else "MergeTree"


async def read_columns(
    client: ClickhouseClient, table: ColumnTable, options: ClickhouseOptions
) -> dict[str, str]:
    """Return the types of the columns that the table of a server has; empty: there is no such table."""
    database, name = place_of(table, options)
    rows = await client.read(COLUMNS, {"database": database, "name": name})
    return {str(row[0]): str(row[1]) for row in rows}


async def prepare_table(
    client: ClickhouseClient, table: ColumnTable, options: ClickhouseOptions
) -> dict[str, str]:
    """Return the types of the columns of a table that will do; make what is missing, where that is wanted.

    Raises Stopped, which names the column, where it will not do.
    """
    found = await read_columns(client, table, options)
    if options.manage_schema:
        for statement in [] if found else ddl_of(table, options):
            await client.change(statement)
        declared = {
            **table.all_columns,
            **table.computed,
        }  # what is computed is not among those that are found
        for name, kind in declared.items():
            if found and name not in found:
                column = f"{quoted(name)} {kind}"
                await client.change(
                    f"ALTER TABLE {full_name(table, options)} ADD COLUMN IF NOT EXISTS {column}"
                )
        found = await read_columns(client, table, options)
    if problem := find_problem(table, found, options):
        raise Stopped(f"schema: {problem}")
    return found


def find_problem(table: ColumnTable, found: Mapping[str, str], options: ClickhouseOptions) -> str:
    """Return why a table with these columns will not do, empty where it will."""
    name = ".".join(place_of(table, options))
    if not found:
        return f"there is no {name}: `ootbot sink ddl` prints what makes it"
    for column, kind in table.all_columns.items():
        if column not in found:
            return f"{name} has no column {column}"
        if not _fits(kind, found[column]):
            return f"{name}.{column} is {found[column]}, not {kind}"
    return ""


def _fits(ours: str, theirs: str) -> bool:
    """Whether a column of their type holds what one of ours does."""
    families = family_of(ours), family_of(theirs)
    if "Nullable" in ours and "Nullable" not in theirs:
        return False
    if families == ("time", "time") and ours.startswith("Nullable"):
        return plain(ours).arguments[:1] == plain(theirs).arguments[:1]
    return families[0] == families[1] or families == ("whole number", "number")
