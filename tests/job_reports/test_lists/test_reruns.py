"""How often disabled tests passed and failed, in jobs that run them over and over."""

from __future__ import annotations

import pytest

from bot.evidence.tests.parse.block import Code
from bot.job_reports.test_lists import make_time_lists
from bot.job_reports.test_lists.reruns import RERUNS_MOST, RerunCase, Reruns, count_reruns
from bot.job_reports.test_lists.times import NameOfTest
from tests.evidence.tests.reported import ran, xml

X = NameOfTest("test_x", "TestX", "f.py")


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (Code.PASSED, "", (1, 0)),
        (Code.XFAILED, "", (1, 0)),
        (Code.FAILED, "", (0, 1)),
        (Code.ERROR, "", (0, 1)),
        (Code.SKIPPED, '{"num_green": 49, "num_red": 1, "flaky": true}', (49, 1)),
        (Code.SKIPPED, '{"num_green": 99999999999, "num_red": -5}', (RERUNS_MOST, 0)),
        (Code.SKIPPED, "needs a device", None),
        (Code.SKIPPED, '{"num_green": "1", "num_red": 0}', None),
        (Code.SKIPPED, "[1, 2", None),
    ],
)
def test_what_a_case_adds(code, message, expected):
    assert count_reruns([RerunCase(X, code, message)]) == ({} if expected is None else {X: Reruns(*expected)})


def test_repetitions_count_for_their_test():
    again = [RerunCase(X._replace(name=f"test_x[{number}]"), Code.PASSED, "") for number in range(3)]
    found = count_reruns([*again, RerunCase(X._replace(name="test_x[1-3]"), Code.FAILED, "")])
    assert found == {X: Reruns(3, 1)}
    assert [one.flaky for one in (Reruns(3, 1), Reruns(0, 0), Reruns(1, 0))] == [True, True, False]


@pytest.mark.logic
async def test_jobs_that_rerun_disabled_tests_are_counted_once(bot, github):
    note = '{"num_green": 50, "num_red": 2, "rerun_disabled_test": true}'
    skipped = f"<testcase file='f.py' classname='TestX' name='test_x' time='1'><skipped message='{note}'/></testcase>"
    await ran(
        github,
        {"a.xml": xml(skipped)},
        name="linux-jammy / test (default, 1, 2, linux.large, rerun_disabled_tests)",
    )
    await bot.settle(horizon=120)
    for _ in range(2):
        await bot.wait(2 * make_time_lists.EVERY)
        await bot.settle(horizon=60)
    (row,) = await bot.rows("test_rerun")
    assert {name: row[name] for name in ("name", "suite", "file", "green", "red", "flaky", "trusted")} == {
        "name": "test_x", "suite": "TestX", "file": "f.py", "green": 50, "red": 2, "flaky": True, "trusted": True,
    }  # fmt: skip
    assert "linux" in row["platforms"]
