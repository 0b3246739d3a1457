"""Files that jobs left, as rows of tables: metrics, compiler caches, benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from bot.ci.extras.benchmarks.tables import benchmark_point, benchmark_series
from bot.ci.extras.caches.tables import ci_cache_stats
from bot.ci.extras.exported_files import describe_metric
from bot.ci.extras.metrics.tables import ci_metric
from bot.ci.extras.tables import ci_source
from bot.core.column_tables import ColumnTable, TableCopy
from bot.db.table_copies import column_types, copy_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import sqlalchemy as sa

    from bot.ci.extras.metrics.tables import MetricRow
    from bot.ci.extras.tables import SourceRow
    from bot.db.exports import Export, Row

OF_FILE = ("run_id", "run_attempt", "job_id", "repo", "workflow", "job_name", "head_branch", "pr_number")
WHOLE, TEXT = "Int64", "String"
UPLOADED = {
    **dict.fromkeys(
        ("repo", "workflow", "build_environment", "job", "test_config", "job_name", "metric_name", "calling_file",
         "calling_module", "calling_function", "info"), TEXT),
    **dict.fromkeys(("pr_number", "run_id", "run_number", "run_attempt", "job_id"), WHOLE),
    "timestamp": "DateTime64(9)",
}  # fmt: skip


def copy_metrics(export: Export) -> TableCopy:
    """Return the copy of lines of metrics."""
    return _with_file(export, ("seq",), ci_metric)


def copy_caches(export: Export) -> TableCopy:
    """Return the copy of what compiler caches said."""
    return _with_file(export, ("tool",), ci_cache_stats, without=("raw",))


def copy_benchmarks(export: Export) -> TableCopy:
    """Return the copy of points of benchmarks, with the names of their series."""
    return _with_file(export, ("series_id",), benchmark_point, benchmark_series, without=("id",))


def _with_file(
    export: Export, order: tuple[str, ...], *tables: sa.Table, without: tuple[str, ...] = ()
) -> TableCopy:
    """Return the copy of the rows of files in a table of the first one's name, with what is known of their jobs."""
    of_file = column_types(ci_source)
    mine = column_types(*tables, without=(*without, "day"))
    columns = {**mine, **{name: of_file[name] for name in OF_FILE}}

    def rows(row: Row) -> Iterator[Mapping[str, Any]]:
        common = {name: row[name] for name in (*OF_FILE, "repository_id", "object_id", "head_sha", "at")}
        return ({**common, **one} for one in row["rows"])

    return copy_of(export, columns, name=tables[0].name, order=order, rows=rows, several=True)


def copy_upstream_metrics(_export: Export) -> TableCopy:
    """Return the copy of lines of metrics in upstream's table, in which a job may have several files."""

    def rows(row: Row) -> Iterator[Mapping[str, Any]]:
        source = cast("SourceRow", row)
        for line in cast("list[MetricRow]", row["rows"]):
            yield {**describe_metric(source, line), "timestamp": line["at"]}

    return TableCopy(
        table=ColumnTable(
            name="misc.ossci_uploaded_metrics",
            columns=UPLOADED,
            order=("repo", "run_id", "job_id", "metric_name", "timestamp", "calling_function", "info"),
        ),
        rows=rows,
        key=("run_id", "run_attempt", "job_id"),
        key_values=lambda _key, row: (
            None if row is None else (row["run_id"], row["run_attempt"], row["job_id"])
        ),
        shared=True,
    )
