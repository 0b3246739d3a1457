"""The parser of benchmarks, in the parser child: records of PyTorch's format v3, and tables as CSV.

A record needs no more than the name of a benchmark and a metric with its values; what it says of its run is not read.
A table has a model in each line, in the column `name`, its device in `dev` or `device`, and metrics in the others.
"""

from __future__ import annotations

import csv
import io
import statistics
from typing import TYPE_CHECKING, Any

from bot.ci.extras.parse.documents import (
    LeftOut,
    Problems,
    as_number,
    as_object,
    as_text,
    finish,
    keep_raw,
    read_documents,
    read_values,
)
from bot.ci.extras.parse.parsed import BenchmarkRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bot.ci.collect.parse.contract import Given
    from bot.ci.extras.parse.documents import Document
    from bot.ci.extras.parse.parsed import Parsed

GLOBS = ("*.json", "*.jsonl", "*.csv")
BYTES_MOST = 64 * 1024 * 1024
RECORDS_MOST = 5_000
VALUES_MOST = 10_000  # of a record
NAME_MOST, EXTRA_MOST = 160, 4 * 1024  # bytes
CSV_PARTS = ("_performance", "_accuracy", "_results", "_compilation_metrics")  # that end a table's name
CSV_KNOWN = frozenset({"name", "dev", "device", "batch_size"})
FIRST, SECOND = 1, 2


def parse_benchmarks(given: Given) -> Parsed[BenchmarkRecord]:
    """Return the records of a file, as far as they can be used."""
    problems = Problems()
    rows: list[BenchmarkRecord] = []
    for document in read_documents(given, GLOBS, most=BYTES_MOST):
        is_table = document.member.casefold().endswith(".csv")
        for row in _of_table(document, problems) if is_table else _of_records(document, problems):
            if len(rows) == RECORDS_MOST:
                problems.add(document.member, 0, f"over {RECORDS_MOST:,} records")
                break
            rows.append(row)
    return finish(rows, problems)


def _of_records(document: Document, problems: Problems) -> Iterator[BenchmarkRecord]:
    for one in read_values(document, problems):
        try:
            yield _record(as_object(one.value, "the record"))
        except LeftOut as error:
            problems.add(one.member, one.line, str(error))


def _record(record: dict[str, Any]) -> BenchmarkRecord:
    benchmark = as_object(record.get("benchmark"), "benchmark")
    model = as_object(record.get("model") or {}, "model")
    metric = as_object(record.get("metric"), "metric")
    about = as_object(benchmark.get("extra_info") or {}, "benchmark.extra_info")
    runner = _first_runner(record.get("runners"))
    values, status = _values(metric)
    extra = {name: record[name] for name in ("inputs", "dependencies", "runners") if record.get(name)} | (
        {"benchmark": about} if about else {}
    )
    if info := model.get("extra_info"):
        extra["model"] = info
    target = metric.get("target_value")
    return BenchmarkRecord(
        benchmark=_name(benchmark.get("name"), "benchmark.name"),
        mode=_text(benchmark.get("mode"), "benchmark.mode"),
        dtype=_text(benchmark.get("dtype"), "benchmark.dtype"),
        model=_text(model.get("name"), "model.name"),
        backend=_text(model.get("backend"), "model.backend"),
        metric=_name(metric.get("name"), "metric.name"),
        device=_text(about.get("device"), "device") or _text(runner.get("gpu_info"), "runners.gpu_info"),
        arch=_text(about.get("arch"), "arch") or _text(runner.get("type"), "runners.type"),
        target=None if target is None else as_number(target, "metric.target_value"),
        extra=keep_raw(extra, EXTRA_MOST) or None,
        status=status,
        **_numbers(values),
    )


def _first_runner(runners: Any) -> Mapping[str, Any]:
    if not isinstance(runners, list) or not runners or not isinstance(runners[0], dict):
        return {}
    return runners[0]


def _values(metric: Mapping[str, Any]) -> tuple[list[float], str]:
    """Return the numbers of a metric, or its word: `pass`, `fail_accuracy`."""
    given = metric.get("benchmark_values")
    if not isinstance(given, list) or not given:
        raise LeftOut("metric.benchmark_values is not a list of numbers")
    if len(given) > VALUES_MOST:
        raise LeftOut(f"over {VALUES_MOST:,} values")
    words = as_object(metric.get("extra_info") or {}, "metric.extra_info").get("benchmark_values")
    if isinstance(given[0], str):
        return [], _text(given[0], "metric.benchmark_values")
    if isinstance(words, list) and words and isinstance(words[0], str):
        return [], _text(words[0], "metric.extra_info.benchmark_values")
    return [as_number(one, "a value") for one in given], ""


def _numbers(values: list[float]) -> dict[str, Any]:
    return {
        "n": len(values),
        "median": statistics.median(values) if values else None,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "stdev": statistics.stdev(values) if len(values) >= SECOND else None,
    }


def _name(value: Any, called: str) -> str:
    if not (text := _text(value, called)):
        raise LeftOut(f"{called} is missing")
    return text


def _text(value: Any, called: str) -> str:
    return " ".join(as_text(value, called, most=NAME_MOST).split())


def _of_table(document: Document, problems: Problems) -> Iterator[BenchmarkRecord]:
    """Yield the records of a table: one for each line and metric."""
    file = document.member.rpartition("/")[2][: -len(".csv")]
    suite = next((file.removesuffix(part) for part in CSV_PARTS if file.endswith(part)), file)
    reader = csv.DictReader(io.StringIO(document.content.decode("utf-8", "replace")))
    try:
        if "name" not in (reader.fieldnames or ()):
            problems.add(document.member, FIRST, "the table has no column `name`")
            return
        for line in reader:
            try:
                yield from _of_line(suite, line)
            except LeftOut as error:
                problems.add(document.member, reader.line_num, str(error))
    except csv.Error as error:
        problems.add(document.member, reader.line_num, f"no CSV: {error}")


def _of_line(suite: str, line: Mapping[str, Any]) -> Iterator[BenchmarkRecord]:
    model = _name(line.get("name"), "name")
    device = _text(line.get("dev") or line.get("device"), "device")
    for column, text in line.items():
        if not column or column in CSV_KNOWN or not isinstance(text, str) or not text.strip():
            continue
        value = _as_float(text)
        status = _text(text, column) if value is None else ""
        if value is None and column != "accuracy":
            continue
        yield BenchmarkRecord(
            benchmark=_name(suite, "the table's name"), mode="", dtype="", model=model, backend="",
            metric=_name(column, "a column"), device=device, arch="", target=None, extra=None, status=status,
            **_numbers([] if value is None else [as_number(value, column)]),
        )  # fmt: skip


def _as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
