"""What was disabled day by day: its rows, the copies for sinks, and what is deleted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.exports import (
    ROW_SHAPES,
    ColumnTable,
    Export,
    Shape,
    StoredObject,
    TableCopy,
    copy_of,
    json_line,
    object_key,
    repo_key,
)
from bot.db.rows import select
from bot.evidence.disabled import pull_closes
from bot.evidence.disabled.tables import DisabledDayRow, ci_disabled_day, ci_disabling, ci_list
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bot.context import Context
    from bot.db.exports import ExportedRow, RowKey
    from bot.db.transaction import Transaction
    from bot.evidence.disabled.lists import Tests

DISABLED_DAY = ci_disabled_day.c
SECOND = 1_000  # milliseconds
HISTORY = "disabled_tests_historical"
EXPORTS = (
    Export(
        name="lists",
        table=ci_list,
        day="made_at",
        shapes={"upstream": Shape(make="bot.evidence.disabled.exports:copy_list", most=20)},
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
            "upstream": Shape(make="bot.evidence.disabled.exports:copy_day", most=50),
            "clickhouse.ootbot": Shape(make="bot.evidence.disabled.exports:copy_day_rows", most=50),
            "clickhouse.upstream": Shape(make="bot.evidence.disabled.exports:copy_upstream_day", most=50),
        },
    ),
)


async def note_day(tx: Transaction, repository_id: int, tests: Tests) -> None:
    """Store the currently disabled tests as today's; a day without any has no row."""
    today = tx.now // DAY
    listed = [[name, int(number), list(platforms)] for name, (number, _, platforms) in sorted(tests.items())]
    mine = (DISABLED_DAY.repository_id == repository_id, DISABLED_DAY.day == today)
    before = await tx.fetch_first(select(DisabledDayRow, ci_disabled_day).where(*mine))
    if listed == ([list(entry) for entry in before["tests"]] if before else []):
        return
    row = {"repository_id": repository_id, "day": today, "tests": listed, "made_at": tx.now}
    await tx.upsert(ci_disabled_day, [row], replaced=["tests", "made_at"])
    tx.note_changed("ci_disabled_day", [row])


async def delete_before(tx: Transaction, day: int) -> int:
    """Delete the days before `day`; return how many."""
    return int((await tx.run(sa.delete(ci_disabled_day).where(DISABLED_DAY.day < day))).rowcount)


def copy_list(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Copy a list as an object under its name."""
    body: bytes = row["body"]
    key = "/".join((export.name, repo_key(row["repo"]), object_key(row["name"])))
    return [StoredObject(key=key, content=lambda: (body,))]


def copy_day(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Copy a day as PyTorch's job stores it, one line per disabled test."""
    date = f"{datetime.fromtimestamp(row['day'] * DAY / SECOND, UTC):%Y-%m-%d}"
    lines = [{**line, "day": date} for line in describe_day(row)]
    key = "/".join((export.name, object_key(date), repo_key(row["repo"])))
    return [StoredObject(key=key, content=lambda: map(json_line, lines))]


def describe_day(row: ExportedRow) -> Iterator[dict[str, Any]]:
    """Yield the tests disabled on a day, with upstream's field names."""
    for name, issue, platforms in row["tests"]:
        yield {
            "day": row["day"],
            "timestamp": row["made_at"] // SECOND,
            "name": name,
            "issueNumber": issue,
            "platforms": platforms,
        }


def copy_day_rows(export: Export) -> TableCopy:
    """Copy days to our own table, one row per test."""
    columns = {
        "repository_id": "Int64", "repo": "LowCardinality(String)", "day": "Date", "name": "String", "issue": "Int64",
        "platforms": "Array(String)", "made_at": "DateTime64(3, 'UTC')",
    }  # fmt: skip

    def rows(row: ExportedRow) -> Iterator[Mapping[str, Any]]:
        common = {name: row[name] for name in ("repository_id", "repo", "day", "made_at")}
        for name, issue, platforms in row["tests"]:
            yield {**common, "name": name, "issue": issue, "platforms": platforms}

    return copy_of(export, columns, name="ci_disabled_test", order=("name",), rows=rows, several=True)


def copy_upstream_day(_export: Export) -> TableCopy:
    """Copy days to upstream's table, which has no repository column: a test disabled once on a day stays."""
    columns = {
        "day": "Date", "timestamp": "DateTime", "name": "String", "issueNumber": "Int32", "platforms": "Array(String)",
    }  # fmt: skip

    def key_values(key: RowKey, _row: ExportedRow | None) -> tuple[int]:
        return (key[1],)

    return TableCopy(
        table=ColumnTable(name=f"misc.{HISTORY}", columns=columns, order=("day", "name")),
        rows=describe_day,
        key=("day",),
        key_values=key_values,
        shared=True,
    )


async def prune_disabled(context: Context) -> dict[str, int]:
    """Delete pull requests that are no longer open, and days past the retention of records."""
    oldest = context.clock.now() // DAY - context.settings.record_retention_days
    async with context.store.transaction() as tx:
        return {
            "what pull requests close": await pull_closes.forget_closed(tx),
            "days of disabled tests": await delete_before(tx, oldest),
        }
