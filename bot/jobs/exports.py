"""What sinks may have copies of: columns of the grid, their changes, commits, daily sums, waits for runners."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import sqlalchemy as sa

from bot.db.exports import (
    COPIED,
    ColumnTable,
    Export,
    Shape,
    StoredObject,
    TableCopy,
    column_types,
    copy_of,
    encode_key,
    json_line,
    object_key,
    repo_key,
)
from bot.jobs.runner_queues import BOUNDS
from bot.jobs.tables import ci_column, ci_line, ci_runner_day, trunk_event
from bot.oot.statistics import histogram
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bot.db.exports import ExportedRow, RowKey
    from bot.db.transaction import Transaction
    from bot.jobs.tables import RunnerDayRow

MINUTE, HOUR, WHOLE_DAY = 60, 3_600, 86_400  # seconds
# upstream's histogram of 90: minutes of the first hour, hours of the first day, days of the first week, all longer ones
UPSTREAM_BOUNDS = (
    *range(MINUTE, HOUR + 1, MINUTE),
    *range(2 * HOUR, WHOLE_DAY + 1, HOUR),
    *range(2 * WHOLE_DAY, 7 * WHOLE_DAY + 1, WHOLE_DAY),
)
VERSION = "1"
BY_DAY = "day"  # the type of our histograms: upstream has one for each half hour
FEW = "LowCardinality(String)"
WHOLE, SECONDS = "Int64", "Nullable(Float64)"
DAYS_AT_ONCE = 50
SHAPES = {
    "upstream": Shape(make="bot.jobs.exports:copy_row", most=500),
    "clickhouse.ootbot": COPIED,
}


def copy_lines(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return the commits of a day of a branch, one line for each."""
    place = object_key(row["branch"], _date(row))
    key = "/".join((export.name, repo_key(row["repo"]), place))
    return [StoredObject(key=key, content=lambda: map(json_line, row["rows"]))]


def copy_line_rows(export: Export) -> TableCopy:
    """Return the copy of commits of branches and how they fared."""
    columns = column_types(ci_line) | {"day": "Date"}
    return copy_of(export, columns, order=("place",), rows=_rows, several=True)


def copy_queue_times(_export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return the waits of a day as PyTorch's job stores them, one line for each label."""
    objects = [
        {
            "avg_queue_s": wait["average"],
            "machine_type": wait["label"],
            "count": wait["waits"],
            "time": f"{_date(row)} 00:00:00",
        }
        for wait in _waits(row)
    ]
    key = "/".join(("queue_times_historical", object_key(_date(row)), repo_key(row["repo"])))
    return [StoredObject(key=key, content=lambda: map(json_line, objects))]


def copy_queue_rows(export: Export) -> TableCopy:
    """Return the copy of waits by runner label and day."""
    columns = {
        "repository_id": WHOLE, "repo": FEW, "day": "Date", "label": FEW, "jobs": WHOLE, "waits": WHOLE,
        "queue_p50": SECONDS, "queue_p90": SECONDS, "duration_p50": SECONDS, "duration_p90": SECONDS,
        "queue_counts": f"Array({WHOLE})",
    }  # fmt: skip

    def rows(row: ExportedRow) -> Iterator[Mapping[str, Any]]:
        for wait in _waits(row):
            yield {**wait, "repo": row["repo"], "queue_counts": histogram.counts(wait["queue"], BOUNDS)}

    return copy_of(export, columns, order=("label",), rows=rows, several=True)


def copy_upstream_queue(_export: Export) -> TableCopy:
    """Return the copy of waits in upstream's table: all jobs of a day with one label."""
    whole = "UInt64"
    columns = {
        "created_time": "DateTime64(0, 'UTC')", "histogram_version": "String", "type": "String", "repo": "String",
        "time": "DateTime64(0, 'UTC')", "workflow_name": "String", "job_name": "String", "machine_type": "String",
        "histogram": f"Array({whole})", "total_count": whole, "max_queue_time": whole, "avg_queue_time": whole,
        "runner_labels": "Array(String)", "extra_info": "Map(String, String)",
    }  # fmt: skip

    def rows(row: ExportedRow) -> Iterator[Mapping[str, Any]]:
        at = row["day"] * WHOLE_DAY
        for wait in _waits(row):
            yield {
                "created_time": at,
                "histogram_version": VERSION,
                "type": BY_DAY,
                "repo": row["repo"],
                "time": at,
                "machine_type": wait["label"],
                "histogram": histogram.counts(wait["queue"], UPSTREAM_BOUNDS),
                "total_count": wait["waits"],
                "max_queue_time": histogram.longest(wait["queue"]),
                "avg_queue_time": wait["average"],
                "runner_labels": wait["label"].split(),
            }

    def key_values(_key: RowKey, row: ExportedRow | None) -> tuple[str, int] | None:
        return None if row is None else (row["repo"], row["day"] * WHOLE_DAY)

    return TableCopy(
        table=ColumnTable(
            name="misc.oss_ci_queue_time_histogram",
            columns=columns,
            order=("type", "repo", "time", "machine_type", "job_name", "workflow_name"),
            replaces=False,
        ),
        rows=rows,
        key=("repo", "time"),
        key_values=key_values,
        several=True,
    )


async def read_days(tx: Transaction, export: Export, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Return the rows of days as `rows`, in the order of the table's key."""
    days: defaultdict[RowKey, list[dict[str, Any]]] = defaultdict(list)
    columns = list(export.key_columns)
    for start in range(0, len(keys), DAYS_AT_ONCE):
        query = sa.select(export.table).where(tx.among(columns, keys[start : start + DAYS_AT_ONCE]))
        for row in await tx.rows(query.order_by(*export.table.primary_key.columns)):
            days[export.key_of(row)].append(row)
    names = [column.name for column in columns]
    return {key: {**dict(zip(names, key, strict=True)), "rows": rows} for key, rows in days.items()}


def copy_row(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return a row as an object below its repository, named by a digest of its key."""
    digest = hashlib.sha256(encode_key(export.key_of(row)).encode()).hexdigest()[:32]
    key = "/".join((export.name, repo_key(row["repo"]), object_key(digest)))
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]


def _of_day(make: str) -> Shape:
    return Shape(make=f"bot.jobs.exports:{make}", read="bot.jobs.exports:read_days", most=50)


EXPORTS = (
    Export(
        name="columns",
        group="trunk",
        table=ci_column,
        day=sa.cast(ci_column.c.seen, sa.BigInteger) * DAY,
        shapes=SHAPES,
    ),
    Export(name="trunk_events", group="trunk", table=trunk_event, day="at", shapes=SHAPES),
    Export(
        name="lines",
        group="trunk",
        table=ci_line,
        key=("repository_id", "branch", "day"),
        day=sa.cast(ci_line.c.day, sa.BigInteger) * DAY,
        shapes={"upstream": _of_day("copy_lines"), "clickhouse.ootbot": _of_day("copy_line_rows")},
    ),
    Export(
        name="queue_times",
        table=ci_runner_day,
        key=("repository_id", "day"),
        day=sa.cast(ci_runner_day.c.day, sa.BigInteger) * DAY,
        shapes={
            "upstream": _of_day("copy_queue_times"),
            "clickhouse.ootbot": _of_day("copy_queue_rows"),
            "clickhouse.upstream": _of_day("copy_upstream_queue"),
        },
    ),
)


def _waits(row: ExportedRow) -> Iterator[dict[str, Any]]:
    """Yield the runner labels of a day with numbers from their histograms."""
    for runner_day in cast("list[RunnerDayRow]", row["rows"]):
        queue, duration = (
            histogram.from_bytes(runner_day["queue"]),
            histogram.from_bytes(runner_day["duration"]),
        )
        queue_p50, queue_p90 = histogram.summary(queue)
        duration_p50, duration_p90 = histogram.summary(duration)
        count, seconds = histogram.total(queue)
        yield {
            "repository_id": runner_day["repository_id"],
            "day": runner_day["day"],
            "label": runner_day["label"],
            "jobs": runner_day["jobs"],
            "waits": count,  # of first attempts, whose wait is known
            "average": round(seconds / count) if count else 0,
            "queue": queue,
            "queue_p50": queue_p50,
            "queue_p90": queue_p90,
            "duration_p50": duration_p50,
            "duration_p90": duration_p90,
        }


def _rows(row: ExportedRow) -> Iterator[Mapping[str, Any]]:
    return ({**day_row, "repo": row["repo"]} for day_row in row["rows"])


def _date(row: ExportedRow) -> str:
    return f"{datetime.fromtimestamp(row['day'] * DAY / 1000, UTC):%Y-%m-%d}"
