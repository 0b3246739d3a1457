"""Daily sums as objects and rows of tables: how commits fared, and how long jobs waited for runners."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from bot.ci.trunk.runner_queue import BOUNDS
from bot.ci.trunk.tables import ci_line
from bot.core.column_tables import ColumnTable, TableCopy
from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.table_copies import column_types, copy_of
from bot.oot.statistics import histogram
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bot.ci.trunk.tables import RunnerDayRow
    from bot.db.exports import Export, Key, Row

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


def copy_lines(export: Export, row: Row) -> list[StoredObject]:
    """Return the commits of a day of a branch, a line each."""
    place = object_key(row["branch"], _date(row))
    key = "/".join((export.name, repo_key(row["repo"]), place))
    return [StoredObject(key=key, content=lambda: map(json_line, row["rows"]))]


def copy_line_rows(export: Export) -> TableCopy:
    """Return the copy of commits of branches, with how they fared."""
    columns = column_types(ci_line) | {"day": "Date"}
    return copy_of(export, columns, order=("place",), rows=_rows, several=True)


def copy_queue_times(_export: Export, row: Row) -> list[StoredObject]:
    """Return the waits of a day as PyTorch's job stores them, a line for each label."""
    found = [
        {
            "avg_queue_s": one["average"],
            "machine_type": one["label"],
            "count": one["waits"],
            "time": f"{_date(row)} 00:00:00",
        }
        for one in _waits(row)
    ]
    key = "/".join(("queue_times_historical", object_key(_date(row)), repo_key(row["repo"])))
    return [StoredObject(key=key, content=lambda: map(json_line, found))]


def copy_queue_rows(export: Export) -> TableCopy:
    """Return the copy of waits by runner label and day."""
    columns = {
        "repository_id": WHOLE, "repo": FEW, "day": "Date", "label": FEW, "jobs": WHOLE, "waits": WHOLE,
        "queue_p50": SECONDS, "queue_p90": SECONDS, "duration_p50": SECONDS, "duration_p90": SECONDS,
        "queue_counts": f"Array({WHOLE})",
    }  # fmt: skip

    def rows(row: Row) -> Iterator[Mapping[str, Any]]:
        for one in _waits(row):
            yield {**one, "repo": row["repo"], "queue_counts": histogram.counts(one["queue"], BOUNDS)}

    return copy_of(export, columns, order=("label",), rows=rows, several=True)


def copy_upstream_queue(_export: Export) -> TableCopy:
    """Return the copy of waits in upstream's table: of all jobs of a day that have one label."""
    whole = "UInt64"
    columns = {
        "created_time": "DateTime64(0, 'UTC')", "histogram_version": "String", "type": "String", "repo": "String",
        "time": "DateTime64(0, 'UTC')", "workflow_name": "String", "job_name": "String", "machine_type": "String",
        "histogram": f"Array({whole})", "total_count": whole, "max_queue_time": whole, "avg_queue_time": whole,
        "runner_labels": "Array(String)", "extra_info": "Map(String, String)",
    }  # fmt: skip

    def rows(row: Row) -> Iterator[Mapping[str, Any]]:
        at = row["day"] * WHOLE_DAY
        for one in _waits(row):
            yield {
                "created_time": at,
                "histogram_version": VERSION,
                "type": BY_DAY,
                "repo": row["repo"],
                "time": at,
                "machine_type": one["label"],
                "histogram": histogram.counts(one["queue"], UPSTREAM_BOUNDS),
                "total_count": one["waits"],
                "max_queue_time": histogram.longest(one["queue"]),
                "avg_queue_time": one["average"],
                "runner_labels": one["label"].split(),
            }

    def key_values(_key: Key, row: Row | None) -> tuple[str, int] | None:
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


def _waits(row: Row) -> Iterator[dict[str, Any]]:
    """Yield the runner labels of a day with what their histograms say."""
    for one in cast("list[RunnerDayRow]", row["rows"]):
        queue, duration = histogram.from_bytes(one["queue"]), histogram.from_bytes(one["duration"])
        queue_p50, queue_p90 = histogram.summary(queue)
        duration_p50, duration_p90 = histogram.summary(duration)
        count, seconds = histogram.total(queue)
        yield {
            "repository_id": one["repository_id"],
            "day": one["day"],
            "label": one["label"],
            "jobs": one["jobs"],
            "waits": count,  # of first attempts, whose wait is known
            "average": round(seconds / count) if count else 0,
            "queue": queue,
            "queue_p50": queue_p50,
            "queue_p90": queue_p90,
            "duration_p50": duration_p50,
            "duration_p90": duration_p90,
        }


def _rows(row: Row) -> Iterator[Mapping[str, Any]]:
    return ({**one, "repo": row["repo"]} for one in row["rows"])


def _date(row: Row) -> str:
    return f"{datetime.fromtimestamp(row['day'] * DAY / 1000, UTC):%Y-%m-%d}"
