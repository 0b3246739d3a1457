"""The parser of benchmarks, in the parser child: records of PyTorch's format v3, and tables as CSV.

A record needs no more than the name of a benchmark and a metric with its values; what it says of its run is not read.
The format: https://github.com/pytorch/pytorch/wiki/PyTorch-OSS-benchmark-infra
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.ci.extras.parse.benchmark_tables import records_of_table
from bot.ci.extras.parse.benchmark_values import one_line, require_name, summarize
from bot.ci.extras.parse.documents import Limits, read_each, read_rows
from bot.ci.extras.parse.json_values import LeftOut, as_number, as_object, keep_raw
from bot.ci.extras.parse.parsed import BenchmarkRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.ci.collect.parse.contract import Given
    from bot.ci.extras.parse.documents import Document, Problems
    from bot.ci.extras.parse.parsed import Parsed

LIMITS = Limits(globs=("*.json", "*.jsonl", "*.csv"), bytes=64 * 1024 * 1024, rows=5_000, called="records")
VALUES_MOST = 10_000  # of a record
EXTRA_MOST = 4 * 1024  # bytes
ACCURACY = "accuracy"


def parse_benchmarks(given: Given) -> Parsed[BenchmarkRecord]:
    """Return the records of a file, as far as they can be used."""
    return read_rows(given, LIMITS, _read)


def _read(document: Document, problems: Problems) -> Iterable[BenchmarkRecord]:
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
    """Return device and architecture, from where PyTorch's own dashboard takes them."""
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
    """Return what is kept beside the names and values: as many parts as fit, those that are large at last."""
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
        raise LeftOut(f"{called} is not a list of numbers")
    if len(given) > VALUES_MOST:
        raise LeftOut(f"over {VALUES_MOST:,} values")
    word = next((one[0] for one in (extra, given) if isinstance(one, list) and one), None)
    if isinstance(word, str):
        return [], one_line(word, called)
    return [as_number(one, "a value") for one in given], ""
