"""Metrics of a CI script: one line of JSON each, in a file that the job uploads as an artifact `ootbot-metrics-...`.

    import metrics
    metrics.emit("pytest.collect", {"seconds": 12.5, "tests": 8430}, labels={"shard": "1"})

or, from a shell:

    python metrics.py pytest.collect seconds=12.5 tests=8430 --label shard=1

No credential is needed, and nothing is sent: the file is $OOTBOT_METRICS, or ootbot-metrics.jsonl. What a metric is of,
the run, job and commit, is GitHub's to say. Standard library only, Python 3.7 or later.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILE = "ootbot-metrics.jsonl"
NAME = re.compile(r"[a-z0-9_.-]{1,80}$")
VALUES_MOST, TEXT_MOST = 32, 256


def emit(
    name: str,
    values: Mapping[str, Any],
    labels: Mapping[str, Any] | None = None,
    source: str | None = None,
) -> None:
    """Append a metric to the file.

    Values are numbers, texts, booleans or None. Raises ValueError for what would be left out: that is a bug in the
    script. A file that cannot be written is no reason for CI to fail: it is said on standard error.
    """
    line = {
        "metric": _checked(name, "the metric's name"),
        "ts": int(time.time() * 1000),
        "values": _checked_values(values),
        "labels": {_checked(key, "a label's name"): str(value) for key, value in (labels or {}).items()},
        "from": source or _caller(),
    }
    text = json.dumps(line, allow_nan=False) + "\n"
    path = os.environ.get("OOTBOT_METRICS") or FILE
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        sys.stderr.write(f"no metric was written: {error}\n")


def _checked(name: Any, called: str) -> str:
    if not isinstance(name, str) or not NAME.match(name):
        raise ValueError(f"{called} is not of 1 to 80 characters a-z 0-9 _ . -: {name!r}")
    return name


def _checked_values(values: Mapping[str, Any]) -> dict[str, Any]:
    if not 0 < len(values) <= VALUES_MOST:
        raise ValueError(f"{len(values)} values, not 1 to {VALUES_MOST}")
    return {_checked(name, "a value's name"): _checked_value(name, value) for name, value in values.items()}


def _checked_value(name: str, value: Any) -> Any:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{name} is not finite")
        return value
    return str(value)[:TEXT_MOST]


def _caller() -> str:
    code = sys._getframe(2).f_code  # noqa: SLF001 - who called emit
    return f"{Path(code.co_filename).name}:{code.co_name}"


def _value(text: str) -> Any:
    """Return what is written on a command line: a number, true, false, null, or else a text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, (dict, list, str)) else value


def _pairs(given: Sequence[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    wrong = [name for name, equals, _ in pairs if not equals]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not of the form name=value")
    return {name: value for name, _, value in pairs}


def main(arguments: Sequence[str] | None = None) -> None:
    """Emit one metric that the command line names."""
    parser = argparse.ArgumentParser(description="Append a metric to $OOTBOT_METRICS, or " + FILE)
    parser.add_argument("name", help="such as pytest.collect")
    parser.add_argument("values", nargs="+", metavar="name=value", help="such as seconds=12.5")
    parser.add_argument("--label", action="append", default=[], metavar="name=value", help="such as shard=1")
    given = parser.parse_args(arguments)
    try:
        values = {name: _value(text) for name, text in _pairs(given.values).items()}
        emit(given.name, values, labels=_pairs(given.label), source="command line")
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
