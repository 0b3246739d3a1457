"""What sinks may have copies of: files that jobs left, selected tests, contributions and stable commits."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import sqlalchemy as sa

from bot.db.exports import (
    COPIED,
    ROW_SHAPES,
    ColumnTable,
    Export,
    Shape,
    StoredObject,
    TableCopy,
    column_types,
    copy_of,
    json_line,
    object_key,
    repo_key,
)
from bot.evidence.tests.tables import test_exclusion
from bot.job_reports import benchmark_rows, caches, documents, script_metrics
from bot.job_reports.contributions import DAY
from bot.job_reports.tables import (
    benchmark_point,
    benchmark_series,
    ci_cache_stats,
    ci_metric,
    ci_source,
    contribution_day,
    contribution_pull,
    stable_push,
    td_miss,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from bot.db.exports import ExportedRow, RowKey
    from bot.db.transaction import Transaction
    from bot.job_reports.tables import CacheStatsRow, MetricRow, NamedSeriesPoint, SourceRow

FILES_AT_ONCE = 20  # one has up to 10,000 rows
METRICS, CACHES, BENCHMARKS = "metrics", "sccache", "benchmark"  # kinds
FILE_COLUMNS = ("run_id", "run_attempt", "job_id", "repo", "workflow", "job_name", "head_branch", "pr_number")
WHOLE_TYPE, TEXT_TYPE = "Int64", "String"
UPSTREAM_METRIC_COLUMNS = {
    **dict.fromkeys(
        ("repo", "workflow", "build_environment", "job", "test_config", "job_name", "metric_name", "calling_file",
         "calling_module", "calling_function", "info"), TEXT_TYPE),
    **dict.fromkeys(("pr_number", "run_id", "run_number", "run_attempt", "job_id"), WHOLE_TYPE),
    "timestamp": "DateTime64(9)",
}  # fmt: skip
CONTRIBUTION_COUNTS = "external_contribution_counts"


async def read_metrics(tx: Transaction, _export: Export, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Return files of metrics with their lines."""
    return await _read_sources(tx, keys, METRICS, script_metrics.lines_of_source)


async def read_caches(tx: Transaction, _export: Export, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Return files of compiler caches with what each tool said."""
    return await _read_sources(tx, keys, CACHES, caches.stats_of_source)


async def read_benchmarks(
    tx: Transaction, _export: Export, keys: Sequence[RowKey]
) -> dict[RowKey, ExportedRow]:
    """Return files of benchmarks with their points and the names of their series."""
    return await _read_sources(tx, keys, BENCHMARKS, benchmark_rows.named_points_of_source)


def copy_metrics_to_objects(_export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return a file of metrics as PyTorch's `upload_metrics` stores them."""
    source, lines = cast("SourceRow", row), cast("list[MetricRow]", row["rows"])
    return _stored_object("ossci_uploaded_metrics", source, (describe_metric(source, line) for line in lines))


def describe_metric(source: SourceRow, line: MetricRow) -> dict[str, object]:
    """Return a line of metrics with upstream's names."""
    file, _, function = line["source"].rpartition(":")
    return {
        "repo": source["repo"],
        "workflow": source["workflow"],
        "build_environment": source["base_name"],
        "job": source["job_name"],
        "test_config": source["config"],
        "pr_number": source["pr_number"],
        "run_id": source["run_id"],
        "run_number": None,
        "run_attempt": source["run_attempt"],
        "job_id": source["job_id"],
        "job_name": source["job_name"],
        "metric_name": line["metric"],
        "calling_file": file or line["source"],
        "calling_module": "",
        "calling_function": function if file else "",
        "timestamp": line["at"] / 1000,
        "info": json.dumps(line["values"] | line["labels"]),
    }


def copy_caches_to_objects(_export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return the statistics of compiler caches, flattened, as PyTorch's `upload_sccache_stats` stores them."""
    source, stats = cast("SourceRow", row), cast("list[CacheStatsRow]", row["rows"])
    about = {
        "workflow_id": source["run_id"],
        "run_attempt": source["run_attempt"],
        "job_id": source["job_id"],
    }
    return _stored_object(
        "sccache_stats", source, ((tool_stats["raw"] or {}) | about for tool_stats in stats)
    )


def copy_benchmarks_to_objects(_export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return benchmarks as records of PyTorch's format v3, with what GitHub says of their run."""
    source = cast("SourceRow", row)
    return _stored_object(
        "v3",
        source,
        (_benchmark_record(source, point) for point in cast("list[NamedSeriesPoint]", row["rows"])),
    )


def copy_metrics_to_table(export: Export) -> TableCopy:
    """Return the table of lines of metrics."""
    return _with_file(export, ("seq",), ci_metric)


def copy_caches_to_table(export: Export) -> TableCopy:
    """Return the table of statistics of compiler caches."""
    return _with_file(export, ("tool",), ci_cache_stats, without=("raw",))


def copy_benchmarks_to_table(export: Export) -> TableCopy:
    """Return the table of points of benchmarks, with the names of their series."""
    return _with_file(export, ("series_id",), benchmark_point, benchmark_series, without=("id",))


def copy_metrics_to_upstream_table(_export: Export) -> TableCopy:
    """Return upstream's table of lines of metrics, in which a job may have several files."""

    def rows(row: ExportedRow) -> Iterator[Mapping[str, Any]]:
        source = cast("SourceRow", row)
        for line in cast("list[MetricRow]", row["rows"]):
            yield {**describe_metric(source, line), "timestamp": line["at"]}

    return TableCopy(
        table=ColumnTable(
            name="misc.ossci_uploaded_metrics",
            columns=UPSTREAM_METRIC_COLUMNS,
            order=("repo", "run_id", "job_id", "metric_name", "timestamp", "calling_function", "info"),
        ),
        rows=rows,
        key=("run_id", "run_attempt", "job_id"),
        key_values=lambda _key, row: (
            None if row is None else (row["run_id"], row["run_attempt"], row["job_id"])
        ),
        shared=True,
    )


def copy_contribution_day(_export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return a day as PyTorch's `upload_external_contrib_stats` stores it."""
    date = f"{datetime.fromtimestamp(row['day'] * DAY / 1000, UTC):%Y-%m-%d}"
    users: list[str] = row["users"]
    line: dict[str, Any] = {
        "date": date,
        "pr_count": row["pr_count"],
        "user_count": len(users),
        "users": users,
    }
    key = "/".join((CONTRIBUTION_COUNTS, object_key(date), repo_key(row["repo"])))
    return [StoredObject(key=key, content=lambda: (json_line(line),))]


def _document_export(name: str, kind: str, *, rows: str) -> Export:
    def shape(place: str) -> Shape:
        return Shape(
            make=f"bot.job_reports.exports:copy_{rows}_to_{place}",
            read=f"bot.job_reports.exports:read_{rows}",
            most=FILES_AT_ONCE,
        )

    further = {"clickhouse.upstream": shape("upstream_table")} if kind == METRICS else {}
    return Export(
        name=name,
        table=ci_source,
        day="at",
        repositories=("repository_id",),
        condition=ci_source.c.kind == kind,
        shapes={"upstream": shape("objects"), "clickhouse.ootbot": shape("table")} | further,
    )


EXPORTS = (
    _document_export("ossci_uploaded_metrics", METRICS, rows="metrics"),
    _document_export("sccache_stats", CACHES, rows="caches"),
    _document_export("benchmark_records", BENCHMARKS, rows="benchmarks"),
    Export(
        name="test_exclusions", group="selection", table=test_exclusion, day="received_at", shapes=ROW_SHAPES
    ),
    Export(name="td_misses", group="selection", table=td_miss, day="at", shapes=ROW_SHAPES),
    Export(
        name=CONTRIBUTION_COUNTS,
        table=contribution_day,
        day=sa.cast(contribution_day.c.day, sa.BigInteger) * DAY,
        shapes={
            "upstream": Shape(make="bot.job_reports.exports:copy_contribution_day", most=500),
            "clickhouse.ootbot": COPIED,
        },
    ),
    Export(name="contributions", table=contribution_pull, day="created_at", shapes=ROW_SHAPES),
    Export(name="stable_pushes", table=stable_push, day="at", shapes=ROW_SHAPES),
)


async def _read_sources(
    tx: Transaction,
    keys: Sequence[RowKey],
    kind: str,
    rows: Callable[[Transaction, SourceRow], Awaitable[Sequence[Any]]],
) -> dict[RowKey, ExportedRow]:
    """Return the files of a kind, each with its `rows`."""
    sources = await documents.sources_by_key(tx, [(key[0], key[1]) for key in keys])
    return {
        key: {**source, "rows": await rows(tx, source)}
        for key, source in sources.items()
        if source["kind"] == kind
    }


def _benchmark_record(source: SourceRow, point: NamedSeriesPoint) -> dict[str, object]:
    extra = point["extra"] or {}
    device = {"device": point["device"], "arch": point["arch"]}
    return {
        "timestamp": source["at"] // 1000,
        "schema_version": "v3",
        "name": point["benchmark"],
        "repo": source["repo"],
        "head_branch": source["head_branch"],
        "head_sha": source["head_sha"],
        "workflow_id": source["run_id"],
        "run_attempt": source["run_attempt"],
        "job_id": source["job_id"],
        "benchmark": {
            "name": point["benchmark"],
            "mode": point["mode"],
            "dtype": point["dtype"],
            "extra_info": {**extra.get("benchmark", {}), **device},
        },
        "model": {"name": point["model"], "backend": point["backend"], "extra_info": extra.get("model", {})},
        "inputs": extra.get("inputs", {}),
        "dependencies": extra.get("dependencies", {}),
        "metric": {
            "name": point["metric"],
            "benchmark_values": [] if point["median"] is None else [point["median"]],
            "target_value": point["target"],
            "extra_info": {"benchmark_values": [point["status"]]} if point["status"] else {},
        },
        "runners": extra.get("runners", []),
    }


def _stored_object(folder: str, source: SourceRow, lines: Iterable[dict[str, object]]) -> list[StoredObject]:
    parts = (source["head_branch"] or "none", source["run_id"], source["run_attempt"], source["object_id"])
    key = "/".join((folder, repo_key(source["repo"]), object_key(*parts)))
    written = list(lines)
    return [StoredObject(key=key, content=lambda: map(json_line, written))]


def _with_file(
    export: Export, order: tuple[str, ...], *tables: sa.Table, without: tuple[str, ...] = ()
) -> TableCopy:
    """Return the copy of the rows of files, with the facts of their jobs, in a table named after the first one."""
    of_file = column_types(ci_source)
    mine = column_types(*tables, without=(*without, "day"))
    columns = {**mine, **{name: of_file[name] for name in FILE_COLUMNS}}

    def rows(row: ExportedRow) -> Iterator[Mapping[str, Any]]:
        common = {name: row[name] for name in (*FILE_COLUMNS, "repository_id", "object_id", "head_sha", "at")}
        return ({**common, **file_row} for file_row in row["rows"])

    return copy_of(export, columns, name=tables[0].name, order=order, rows=rows, several=True)
