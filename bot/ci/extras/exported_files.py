"""What sinks may have copies of: files that jobs left, each as one object with a line for each of its rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from bot.ci.extras import source_rows
from bot.ci.extras.benchmarks import series_rows
from bot.ci.extras.caches import build_rows
from bot.ci.extras.metrics import metric_rows
from bot.ci.extras.tables import ci_source
from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from bot.ci.extras.benchmarks.tables import NamedPoint
    from bot.ci.extras.caches.tables import CacheStatsRow
    from bot.ci.extras.metrics.tables import MetricRow
    from bot.ci.extras.tables import SourceRow
    from bot.db.exports import Key, Row
    from bot.db.transaction import Transaction

FILES_AT_ONCE = 20  # one has up to 10,000 rows
METRICS, CACHES, BENCHMARKS = "metrics", "sccache", "benchmark"  # kinds


async def read_metrics(tx: Transaction, _export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return files of metrics with their lines."""
    return await _read(tx, keys, METRICS, metric_rows.lines_of_source)


async def read_caches(tx: Transaction, _export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return files of compiler caches with what each tool said."""
    return await _read(tx, keys, CACHES, build_rows.stats_of_source)


async def read_benchmarks(tx: Transaction, _export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return files of benchmarks with their points and the names of their series."""
    return await _read(tx, keys, BENCHMARKS, series_rows.named_points_of_source)


async def _read(
    tx: Transaction,
    keys: Sequence[Key],
    kind: str,
    rows: Callable[[Transaction, SourceRow], Awaitable[Sequence[Any]]],
) -> dict[Key, Row]:
    """Return files of a kind, each with its rows as `rows`."""
    sources = await source_rows.sources_by_key(tx, [(key[0], key[1]) for key in keys])
    return {
        key: {**source, "rows": await rows(tx, source)}
        for key, source in sources.items()
        if source["kind"] == kind
    }


def copy_metrics(_export: Export, row: Row) -> list[StoredObject]:
    """Return a file of metrics as PyTorch's `upload_metrics` stores them."""
    source, lines = cast("SourceRow", row), cast("list[MetricRow]", row["rows"])
    return _object("ossci_uploaded_metrics", source, (describe_metric(source, one) for one in lines))


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


def copy_caches(_export: Export, row: Row) -> list[StoredObject]:
    """Return what compiler caches said, flattened, as PyTorch's `upload_sccache_stats` stores it."""
    source, found = cast("SourceRow", row), cast("list[CacheStatsRow]", row["rows"])
    about = {
        "workflow_id": source["run_id"],
        "run_attempt": source["run_attempt"],
        "job_id": source["job_id"],
    }
    return _object("sccache_stats", source, ((one["raw"] or {}) | about for one in found))


def copy_benchmarks(_export: Export, row: Row) -> list[StoredObject]:
    """Return benchmarks as records of PyTorch's format v3, with what GitHub says of their run."""
    source = cast("SourceRow", row)
    return _object("v3", source, (_record(source, one) for one in cast("list[NamedPoint]", row["rows"])))


def _record(source: SourceRow, point: NamedPoint) -> dict[str, object]:
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


def _object(folder: str, source: SourceRow, lines: Iterable[dict[str, object]]) -> list[StoredObject]:
    parts = (source["head_branch"] or "none", source["run_id"], source["run_attempt"], source["object_id"])
    key = "/".join((folder, repo_key(source["repo"]), object_key(*parts)))
    written = list(lines)
    return [StoredObject(key=key, content=lambda: map(json_line, written))]


def _export(name: str, kind: str, *, copied: str, read: str) -> Export:
    module = "bot.ci.extras"

    def shape(make: str) -> Shape:
        return Shape(make=f"{module}.{make}", read=f"{module}.exported_files:{read}", most=FILES_AT_ONCE)

    return Export(
        name=name,
        table=ci_source,
        day="at",
        repositories=("repository_id",),
        condition=ci_source.c.kind == kind,
        shapes={
            "upstream": shape(f"exported_files:{copied}"),
            "clickhouse.ootbot": shape(f"exported_tables:{copied}"),
        }
        | (
            {"clickhouse.upstream": shape("exported_tables:copy_upstream_metrics")} if kind == METRICS else {}
        ),
    )


EXPORTS = (
    _export("ossci_uploaded_metrics", METRICS, copied="copy_metrics", read="read_metrics"),
    _export("sccache_stats", CACHES, copied="copy_caches", read="read_caches"),
    _export("benchmark_records", BENCHMARKS, copied="copy_benchmarks", read="read_benchmarks"),
)
