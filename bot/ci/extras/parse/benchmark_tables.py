"""Tables of benchmarks as CSV, such as TorchInductor's: a model in each line, metrics in the columns."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from bot.ci.extras.parse.benchmark_values import one_line, require_name, summarize
from bot.ci.extras.parse.json_values import LeftOut, as_number
from bot.ci.extras.parse.parsed import BenchmarkRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bot.ci.extras.parse.documents import Document, Problems

PARTS = ("_performance", "_accuracy", "_results", "_compilation_metrics")  # that end a table's name
KNOWN = frozenset({"name", "dev", "device", "batch_size"})  # columns that are no metrics
WORDS = frozenset({"accuracy"})  # metrics that may be words
FIRST = 1


def records_of_table(document: Document, problems: Problems) -> Iterator[BenchmarkRecord]:
    """Yield the records of a table: one for each line and metric."""
    file = document.member.rpartition("/")[2][: -len(".csv")]
    suite = next((file.removesuffix(part) for part in PARTS if file.endswith(part)), file)
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
    model = require_name(line.get("name"), "name")
    device = one_line(line.get("dev") or line.get("device"), "device")
    for column, text in line.items():
        if not column or column in KNOWN or not isinstance(text, str) or not text.strip():
            continue
        value = _as_float(text)
        status = one_line(text, column) if value is None else ""
        if value is None and column not in WORDS:
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
