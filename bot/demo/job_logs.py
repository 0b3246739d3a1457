"""Logs of the demo's jobs, as GitHub's runner writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.demo.backends import FailedTest

PASSING = ("test/test_views.py::TestViews::test_reshape", "test/test_unary.py::TestUnary::test_exp")


def job_log(
    name: str, failed: Iterable[FailedTest], *, ended_at: int, last: str = "Build and tests are done"
) -> str:
    """Return the log of a job that ended then (epoch milliseconds), with these tests failing.

    `last` is the last line where none does.
    """
    tests = list(failed)
    lines = [
        "##[group]Runner Image",
        "Image: ubuntu-24.04",
        "##[endgroup]",
        f"##[group]Run make {name}",
        f"\x1b[36;1mmake {name}\x1b[0m",
        "##[endgroup]",
        "collected 8452 items",
        *(f"{test} PASSED" for test in PASSING),
    ]
    for test in tests:
        lines += [
            f"{_id(test)} FAILED",
            *str(test.get("stacktrace") or test.get("message") or "").split("\n"),
        ]
    if tests:
        lines.append("=========================== short test summary info ============================")
        lines += [f"FAILED {_id(test)} - {test.get('message', '')}" for test in tests]
        lines.append("##[error]Process completed with exit code 1.")
    else:
        lines.append(last)
    first = ended_at - len(lines)
    return "".join(f"{_stamp(first + number)} {line}\n" for number, line in enumerate(lines))


def _id(test: FailedTest) -> str:
    parts = (test.get("file"), test.get("classname"), test.get("name"))
    return "::".join(str(part) for part in parts if part)


def _stamp(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%dT%H:%M:%S.%f}0Z"
