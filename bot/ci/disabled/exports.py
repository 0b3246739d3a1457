"""What sinks may have copies of: issues that disable tests or jobs, the lists as they are served, and day by day."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.disabled.tables import ci_disabled_day, ci_disabling, ci_list
from bot.core.column_tables import ColumnTable, TableCopy
from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape
from bot.db.object_copies import ROW_SHAPES
from bot.db.table_copies import copy_of
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bot.db.exports import Key, Row

SECOND = 1_000  # milliseconds
HISTORY = "disabled_tests_historical"


def copy_list(export: Export, row: Row) -> list[StoredObject]:
    """Return a list as an object of its name."""
    body: bytes = row["body"]
    key = "/".join((export.name, repo_key(row["repo"]), object_key(row["name"])))
    return [StoredObject(key=key, content=lambda: (body,))]


def copy_day(export: Export, row: Row) -> list[StoredObject]:
    """Return a day as PyTorch's job stores it, a line for each disabled test."""
    date = f"{datetime.fromtimestamp(row['day'] * DAY / SECOND, UTC):%Y-%m-%d}"
    found = [{**one, "day": date} for one in describe_day(row)]
    key = "/".join((export.name, object_key(date), repo_key(row["repo"])))
    return [StoredObject(key=key, content=lambda: map(json_line, found))]


def describe_day(row: Row) -> Iterator[dict[str, Any]]:
    """Yield the tests that were disabled on a day under upstream's names."""
    for name, issue, platforms in row["tests"]:
        yield {
            "day": row["day"],
            "timestamp": row["made_at"] // SECOND,
            "name": name,
            "issueNumber": issue,
            "platforms": platforms,
        }


def copy_day_rows(export: Export) -> TableCopy:
    """Return the copy of days in a table of ours, a row for each test."""
    columns = {
        "repository_id": "Int64", "repo": "LowCardinality(String)", "day": "Date", "name": "String", "issue": "Int64",
        "platforms": "Array(String)", "made_at": "DateTime64(3, 'UTC')",
    }  # fmt: skip

    def rows(row: Row) -> Iterator[Mapping[str, Any]]:
        common = {name: row[name] for name in ("repository_id", "repo", "day", "made_at")}
        for name, issue, platforms in row["tests"]:
            yield {**common, "name": name, "issue": issue, "platforms": platforms}

    return copy_of(export, columns, name="ci_disabled_test", order=("name",), rows=rows, several=True)


def copy_upstream_day(_export: Export) -> TableCopy:
    """Return the copy of days in upstream's table, which has no repository: what was disabled once that day stays."""
    columns = {
        "day": "Date", "timestamp": "DateTime", "name": "String", "issueNumber": "Int32", "platforms": "Array(String)",
    }  # fmt: skip

    def key_values(key: Key, _row: Row | None) -> tuple[int]:
        return (key[1],)

    return TableCopy(
        table=ColumnTable(name=f"misc.{HISTORY}", columns=columns, order=("day", "name")),
        rows=describe_day,
        key=("day",),
        key_values=key_values,
        shared=True,
    )


EXPORTS = (
    Export(
        name="lists",
        table=ci_list,
        day="made_at",
        shapes={"upstream": Shape(make="bot.ci.disabled.exports:copy_list", most=20)},
    ),
    Export(
        name="disabled_issues",
        table=ci_disabling,
        day=sa.func.coalesce(ci_disabling.c.created_at, 0),
        shapes=ROW_SHAPES,
    ),
    Export(
        name=HISTORY,
        table=ci_disabled_day,
        day="made_at",
        shapes={
            "upstream": Shape(make="bot.ci.disabled.exports:copy_day", most=50),
            "clickhouse.ootbot": Shape(make="bot.ci.disabled.exports:copy_day_rows", most=50),
            "clickhouse.upstream": Shape(make="bot.ci.disabled.exports:copy_upstream_day", most=50),
        },
    ),
)
