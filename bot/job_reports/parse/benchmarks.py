"""The parser of benchmarks, in the parser child: records of PyTorch's format v3, and tables as CSV.

A record needs no more than the name of a benchmark and a metric with its values; what it says of its run is not read.
The format: https://github.com/pytorch/pytorch/wiki/PyTorch-OSS-benchmark-infra
"""

from __future__ import annotations

import csv
import io
import statistics
from typing import TYPE_CHECKING, Any

from bot.job_reports.parse.documents import Limits, read_each, read_rows
from bot.job_reports.parse.values import (
    BenchmarkRecord,
    SkippedValue,
    as_number,
    as_object,
    as_text,
    keep_raw,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bot.evidence.collect.parse.contract import ParserInput
    from bot.job_reports.parse.documents import Document, Problems
    from bot.job_reports.parse.values import Parsed

NAME_MOST = 160  # bytes
STDEV_LEAST = 2
TABLE_SUFFIXES = ("_performance", "_accuracy", "_results", "_compilation_metrics")  # that end a table's name
OTHER_COLUMNS = frozenset({"name", "dev", "device", "batch_size"})  # columns that are no metrics
WORD_METRICS = frozenset({"accuracy"})  # metrics that may be words
FIRST_LINE = 1
LIMITS = Limits(globs=("*.json", "*.jsonl", "*.csv"), bytes=64 * 1024 * 1024, rows=5_000, called="records")
VALUES_MOST = 10_000  # of a record
EXTRA_MOST = 4 * 1024  # bytes
ACCURACY = "accuracy"


def require_name(value: Any, called: str) -> str:
    """Return a text that is not empty; raises SkippedValue."""
    if not (text := one_line(value, called)):
        raise SkippedValue(f"{called} is missing")
    return text


def one_line(value: Any, called: str) -> str:
    """Return a text on one line; the empty text for none; raises SkippedValue."""
    return " ".join(as_text(value, called, most=NAME_MOST).split())


def summarize(values: list[float]) -> dict[str, Any]:
    """Return the summary of one run's values, which may be none if there is only a status."""
    return {
        "n": len(values),
        "median": statistics.median(values) if values else None,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "stdev": statistics.stdev(values) if len(values) >= STDEV_LEAST else None,
    }


def records_of_table(document: Document, problems: Problems) -> Iterator[BenchmarkRecord]:
    """Yield the records of a table: one for each line and metric."""
    file = document.member.rpartition("/")[2][: -len(".csv")]
    suite = next((file.removesuffix(part) for part in TABLE_SUFFIXES if file.endswith(part)), file)
    reader = csv.DictReader(io.StringIO(document.content.decode("utf-8", "replace")))
    try:
        if "name" not in (reader.fieldnames or ()):
            problems.add(document.member, FIRST_LINE, "the table has no column `name`")
            return
        for line in reader:
            try:
                yield from _records_of_line(suite, line)
            except SkippedValue as error:
                problems.add(document.member, reader.line_num, str(error))
    except csv.Error as error:
        problems.add(document.member, reader.line_num, f"no CSV: {error}")


def parse_benchmarks(given: ParserInput) -> Parsed[BenchmarkRecord]:
    """Return the usable records of a file."""
    return read_rows(given, LIMITS, _read_document)


def _records_of_line(suite: str, line: Mapping[str, Any]) -> Iterator[BenchmarkRecord]:
    model = require_name(line.get("name"), "name")
    device = one_line(line.get("dev") or line.get("device"), "device")
    for column, text in line.items():
        if not column or column in OTHER_COLUMNS or not isinstance(text, str) or not text.strip():
            continue
        value = _as_float(text)
        status = one_line(text, column) if value is None else ""
        if value is None and column not in WORD_METRICS:
            continue
        yield BenchmarkRecord(
            benchmark=require_name(suite, "the table's name"), mode="", dtype="", model=model, backend="",
            metric=require_name(column, "a column"), device=device, arch="", target=None, extra=None, status=status,
            **summarize([] if value is None else [as_number(value, column)]),
        )  # fmt: skip


def _as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _read_document(document: Document, problems: Problems) -> Iterable[BenchmarkRecord]:
    if document.member.casefold().endswith(".csv"):
        return records_of_table(document, problems)
    return read_each(document, problems, _record)


def _record(value: Any) -> BenchmarkRecord:
    record = as_object(value, "the record")
    benchmark = as_object(record.get("benchmark"), "benchmark")
    model = as_object(record.get("model") or {}, "model")
    metric = as_object(record.get("metric"), "metric")
    about = as_object(benchmark.get("extra_info") or {}, "benchmark.extra_info")
    values, status = _values(metric)
    device, arch = _machine(about, _first_runner(record.get("runners")))
    target = metric.get("target_value")
    return BenchmarkRecord(
        benchmark=require_name(benchmark.get("name"), "benchmark.name"),
        mode=one_line(benchmark.get("mode"), "benchmark.mode"),
        dtype=one_line(benchmark.get("dtype"), "benchmark.dtype"),
        model=one_line(model.get("name"), "model.name"),
        backend=_backend(model, about, metric),
        metric=require_name(metric.get("name"), "metric.name"),
        device=device,
        arch=arch,
        target=None if target is None else as_number(target, "metric.target_value"),
        extra=_extra(record, about, model),
        status=status,
        **summarize(values),
    )


def _machine(about: Mapping[str, Any], runner: Mapping[str, Any]) -> tuple[str, str]:
    """Return device and architecture, from the fields that PyTorch's own dashboard uses."""
    device = (
        one_line(runner.get("name"), "runners.name")
        or one_line(about.get("device"), "device")
        or one_line(runner.get("gpu_info"), "runners.gpu_info")
    )
    arch = (
        one_line(runner.get("type"), "runners.type")
        or one_line(about.get("arch"), "arch")
        or one_line(runner.get("cpu_info"), "runners.cpu_info")
    )
    return device, arch


def _first_runner(runners: Any) -> Mapping[str, Any]:
    if not isinstance(runners, list) or not runners or not isinstance(runners[0], dict):
        return {}
    return runners[0]


def _backend(model: Mapping[str, Any], about: Mapping[str, Any], metric: Mapping[str, Any]) -> str:
    """Return the compiler of a model.

    TorchInductor's jobs measure a model with several settings of one backend, and tell them apart by the file that they
    write: `.../inductor_with_cudagraphs_torchbench_amp_training_cuda_performance.csv`, where the suite is the first
    origin.
    """
    backend = one_line(model.get("backend"), "model.backend")
    output, origins = about.get("output"), model.get("origins")
    origin = origins[0] if isinstance(origins, list) and origins else None
    if not isinstance(output, str) or not isinstance(origin, str):
        return backend
    file = output.rpartition("/")[2]
    compiler, suite, _ = file.partition(f"_{origin}_")
    named = one_line(compiler, "benchmark.extra_info.output") if suite else backend
    # a run that checks accuracy measures the same as the one of performance, under other conditions
    other = "_accuracy" in file and metric.get("name") != ACCURACY
    return f"{named} {ACCURACY}" if other else named


def _extra(
    record: Mapping[str, Any], about: Mapping[str, Any], model: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return what is kept beside names and values: as many parts as fit, large ones last."""
    given = {
        **{name: record.get(name) for name in ("runners", "inputs", "dependencies")},
        "model": model.get("extra_info"),
        "benchmark": about,  # of TorchInductor all its settings
    }
    kept: dict[str, Any] = {}
    for name, value in given.items():
        if value:
            kept = keep_raw(kept | {name: value}, EXTRA_MOST) or kept
    return kept or None


def _values(metric: Mapping[str, Any]) -> tuple[list[float], str]:
    """Return the numbers of a metric, or its word, such as `pass`: TorchInductor has these in the extra info alone."""
    called = "metric.benchmark_values"
    extra = as_object(metric.get("extra_info") or {}, "metric.extra_info").get("benchmark_values")
    given = metric.get("benchmark_values") or extra
    if not isinstance(given, list) or not given:
        raise SkippedValue(f"{called} is not a list of numbers")
    if len(given) > VALUES_MOST:
        raise SkippedValue(f"over {VALUES_MOST:,} values")
    word = next((values[0] for values in (extra, given) if isinstance(values, list) and values), None)
    if isinstance(word, str):
        return [], one_line(word, called)
    return [as_number(value, "a value") for value in given], ""
