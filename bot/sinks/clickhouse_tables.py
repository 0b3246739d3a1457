"""Tables of ClickHouse: types of columns, values and keys for them, and the statements that make tables."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from bot.sinks.driver import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bot.db.exports import ColumnTable, TableCopy
    from bot.sinks.clickhouse import ClickhouseClient
    from bot.sinks.settings import ClickhouseOptions

WHOLE, REAL = re.compile(r"U?Int\d+"), re.compile(r"(BFloat|Float|Decimal)\d*")
NAMED = re.compile(r"(?:`([^`]+)`|(\w+))\s+(\S.*)", re.DOTALL)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS_BELOW = 10**11  # a smaller number counts seconds, as some of GitHub's do, not milliseconds
MILLISECONDS = 3  # digits of a second in our own times
FITTING: Mapping[str, frozenset[type]] = {
    "String": frozenset({str}),
    "Float64": frozenset({float}),
    "Bool": frozenset({bool}),
}  # values that are as a type has them


@dataclass(frozen=True)
class ColumnType:
    """A type with its arguments; those of a tuple may have names."""

    name: str
    arguments: tuple[str, ...] = ()

    @property
    def elements(self) -> dict[str, str]:
        """The types of a tuple's elements by name; empty where they have none."""
        named = [NAMED.fullmatch(argument) for argument in self.arguments]
        return {match[1] or match[2]: match[3] for match in named if match} if all(named) else {}


SELECT_COLUMNS = """SELECT name, type FROM system.columns
WHERE database = {database:String} AND table = {name:String} AND default_kind IN ('', 'DEFAULT') ORDER BY position"""
KEYS_AT_ONCE = 500  # of one statement
# times are compared as the numbers that we have of them: days, and seconds
AS_NUMBERS = {"Date": ("toUInt16", "UInt16"), "DateTime": ("toUnixTimestamp", "UInt32")}
AS_NUMBERS["DateTime64"] = AS_NUMBERS["DateTime"]


@functools.lru_cache(maxsize=4_000)
def parse_type(text: str) -> ColumnType:
    """Read a type such as `Array(Tuple(name String, number Int64))`."""
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return ColumnType(name)
    return ColumnType(name.strip(), tuple(_split(rest.rpartition(")")[0])))


def plain_type(text: str) -> ColumnType:
    """Return a type without Nullable and LowCardinality."""
    kind = parse_type(text)
    while kind.name in {"Nullable", "LowCardinality"}:
        kind = parse_type(kind.arguments[0])
    return kind


def is_time(text: str) -> bool:
    """Whether values of a type are times."""
    return plain_type(text).name in {"DateTime", "DateTime64"}


def family_of(text: str) -> str:
    """Return the family of a type: columns of one family hold the same values."""
    kind = plain_type(text)
    if kind.name == "Array":
        return f"list of {family_of(kind.arguments[0])}"
    if WHOLE.fullmatch(kind.name):
        return "whole number"
    if REAL.fullmatch(kind.name):
        return "number"
    if kind.name in {"String", "FixedString", "Enum8", "Enum16"}:
        return "text"
    return "time" if is_time(text) else kind.name.lower()


def convert_column(text: str, values: list[Any]) -> list[Any]:
    """Return values as a type has them; most columns already are, as one look shows."""
    if _fitting(text).issuperset(map(type, values)) and not (is_time(text) and _has_seconds(values)):
        return values
    return list(map(converter_of(text), values))


@functools.lru_cache(maxsize=4_000)
def converter_of(text: str) -> Callable[[Any], Any]:
    """Return a converter from values of JSON to a type; it raises ValueError or TypeError."""
    kind = parse_type(text)
    if kind.name == "Nullable":
        inner = converter_of(kind.arguments[0])
        return lambda value: None if value is None else inner(value)
    if kind.name == "LowCardinality":
        return converter_of(kind.arguments[0])
    if kind.name in {"Array", "Tuple", "Map"}:
        return _of_several(kind)
    if kind.name in {"DateTime", "DateTime64"}:
        digits = int(kind.arguments[0]) if kind.name == "DateTime64" else 0
        return lambda value: _ticks(value, digits)
    return _days if kind.name in {"Date", "Date32"} else _plain(kind.name)


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
    """Return the statements that make a table, and for a versioned one a view of its newest rows."""
    database, name = place_of(table, options)
    declared = {**table.all_columns, **table.computed}
    columns = ",\n".join(f"  {quoted(name)} {kind}" for name, kind in declared.items())
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
    statements = [f"CREATE DATABASE IF NOT EXISTS {quoted(database)}", "\n".join(lines)]
    if table.versioned:
        view = f"{quoted(database)}.{quoted(f'v_{name}')}"
        rows = f"SELECT * EXCEPT (_version, _deleted) FROM {full_name(table, options)} FINAL"  # noqa: S608 - names are ours
        statements.append(f"CREATE VIEW IF NOT EXISTS {view} AS {rows}")
    return statements + [
        statement
        for view, names in table.views.items()
        for statement in _view_of(table, options, view, names)
    ]


async def read_columns(
    client: ClickhouseClient, table: ColumnTable, options: ClickhouseOptions
) -> dict[str, str]:
    """Return the types of the columns of a table on the server; empty: there is no such table."""
    database, name = place_of(table, options)
    rows = await client.read(SELECT_COLUMNS, {"database": database, "name": name})
    return {str(row[0]): str(row[1]) for row in rows}


async def prepare_table(
    client: ClickhouseClient, table: ColumnTable, options: ClickhouseOptions
) -> dict[str, str]:
    """Return the types of a table's columns once it will do; makes what is missing, where that is wanted.

    Raises Stopped, which names the column, where it will not do.
    """
    columns = await read_columns(client, table, options)
    if options.manage_schema:
        for statement in [] if columns else ddl_of(table, options):
            await client.change(statement)
        declared = {
            **table.all_columns,
            **table.computed,
        }  # what is computed is not among those that are found
        for name, kind in declared.items():
            if columns and name not in columns:
                column = f"{quoted(name)} {kind}"
                await client.change(
                    f"ALTER TABLE {full_name(table, options)} ADD COLUMN IF NOT EXISTS {column}"
                )
        columns = await read_columns(client, table, options)
    if problem := find_schema_problem(table, columns, options):
        raise Stopped(f"schema: {problem}")
    return columns


def find_schema_problem(table: ColumnTable, columns: Mapping[str, str], options: ClickhouseOptions) -> str:
    """Return why a table with these columns will not do, empty if it will."""
    name = ".".join(place_of(table, options))
    if not columns:
        return f"there is no {name}: `ootbot sink ddl` prints what makes it"
    for column, kind in table.all_columns.items():
        if column not in columns:
            return f"{name} has no column {column}"
        if not _column_fits(kind, columns[column]):
            return f"{name}.{column} is {columns[column]}, not {kind}"
    return ""


def key_condition(copy: TableCopy) -> str:
    """Return the condition that a row has one of the keys in the parameter `keys`, a list of tuples."""
    compared = [_compared(name, copy.table.columns[name]) for name in copy.key]
    names = ", ".join(name for name, _ in compared)
    types = ", ".join(kind for _, kind in compared)
    return f"tuple({names}) IN {{keys:Array(Tuple({types}))}}"


def _split(text: str) -> list[str]:
    parts, depth, start, quoted = [], 0, 0, False
    for place, sign in enumerate(text):
        if sign == "'":
            quoted = not quoted
        elif not quoted and sign in "()":
            depth += 1 if sign == "(" else -1
        elif not quoted and sign == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return [part for part in [*parts, text[start:].strip()] if part]


@functools.lru_cache(maxsize=4_000)
def _fitting(text: str) -> frozenset[type]:
    """Return the Python types that a column type takes unchanged."""
    kind = parse_type(text)
    if kind.name == "LowCardinality":
        return _fitting(kind.arguments[0])
    if kind.name == "Nullable":
        inner = _fitting(kind.arguments[0])
        return inner | {type(None)} if inner else inner
    if WHOLE.fullmatch(kind.name) or (kind.name, *kind.arguments[:1]) == ("DateTime64", str(MILLISECONDS)):
        return frozenset({int})
    return FITTING.get(kind.name, frozenset())


def _has_seconds(values: list[Any]) -> bool:
    return min((value for value in values if value is not None), default=SECONDS_BELOW) < SECONDS_BELOW


def _of_several(kind: ColumnType) -> Callable[[Any], Any]:
    if kind.name == "Array":
        return _list(converter_of(kind.arguments[0]))
    if kind.name == "Map":
        return _map(converter_of(kind.arguments[1]))
    return _tuple({name: converter_of(kind) for name, kind in kind.elements.items()})


def _plain(name: str) -> Callable[[Any], Any]:
    if WHOLE.fullmatch(name):
        return _whole
    if REAL.fullmatch(name):
        return _real
    return bool if name == "Bool" else _text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return value.decode() if isinstance(value, bytes) else msgspec.json.encode(value).decode()


def _whole(value: Any) -> int:
    return 0 if value is None else value if type(value) is int else int(value)


def _real(value: Any) -> float:
    return 0.0 if value is None else float(value)


def _list(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> list[Any]:
        if value is not None and not isinstance(value, list | tuple):
            raise TypeError(f"{type(value).__name__} is no list")
        return [inner(element) for element in value or ()]

    return convert


def _tuple(elements: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def convert(value: Any) -> dict[str, Any]:
        if value is not None and not isinstance(value, dict):
            raise TypeError(f"{type(value).__name__} is no object")
        known = value or {}
        return {name: inner(known.get(name)) for name, inner in elements.items()}

    return convert


def _map(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: {str(name): inner(element) for name, element in (value or {}).items()}


def _days(value: Any) -> int:
    """Return a date as a number of days, from such a number or from ISO 8601."""
    if isinstance(value, str):
        return (date.fromisoformat(value) - EPOCH.date()).days
    return _whole(value)


def _ticks(value: Any, digits: int) -> int:
    """Return a time as a number of ticks, from a number, ISO 8601, or a datetime."""
    if value is None:
        return 0
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
        value = value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, datetime):
        millis = (value - EPOCH) // timedelta(milliseconds=1)
    else:
        millis = int(value) if value >= SECONDS_BELOW else int(value * 1000)
    if digits >= MILLISECONDS:
        return int(millis * 10 ** (digits - MILLISECONDS))
    return int(millis // 10 ** (MILLISECONDS - digits))


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


def _column_fits(ours: str, theirs: str) -> bool:
    """Whether a column of their type can hold the values of one of ours."""
    families = family_of(ours), family_of(theirs)
    if "Nullable" in ours and "Nullable" not in theirs:
        return False
    if families == ("time", "time") and ours.startswith("Nullable"):
        return plain_type(ours).arguments[:1] == plain_type(theirs).arguments[:1]
    return families[0] == families[1] or families == ("whole number", "number")


def _compared(name: str, text: str) -> tuple[str, str]:
    """Return the expression by which a column is compared, and the type of its parameter."""
    plain = plain_type(text)
    if plain.name in AS_NUMBERS:
        function, kind = AS_NUMBERS[plain.name]
        return f"{function}({quoted(name)})", kind
    written = f"{plain.name}({', '.join(plain.arguments)})" if plain.arguments else plain.name
    return quoted(name), written
