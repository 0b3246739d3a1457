"""Flags and properties of run reports, and tests that reached their time limit."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bot.cli import main
from tests.evidence.tests.reported import jsonl, ran
from tests.harness import UPSTREAM
from tests.serving import SQLITE

FILE = "u.report.jsonl"
TEST = ("test_ops.py", "TestOps", "test_add")


def with_words(content, head, run):
    """A report whose first line and runs have further fields."""
    lines = [json.loads(line) for line in content.splitlines()]
    whole = [line | (head if line["type"] == "report" else run) for line in lines]
    return "\n".join(map(json.dumps, whole)).encode() + b"\n"


async def failures(bot):
    """The only failing test: its failures as JSON, and its page."""
    _, listed = await bot.get(f"/api/ci/tests/{UPSTREAM}")
    (test,) = (one["test"] for one in listed["tests"])
    _, answer = await bot.get(f"/api/ci/tests/{UPSTREAM}/{test}")
    _, page = await bot.get(f"/{UPSTREAM}/test/{test}")
    return answer["failures"], page


@pytest.mark.logic
async def test_flags_and_properties_stand_beside_the_failure(bot, github):
    head = {"flags": {"USE_NPU": "1", "HF_TOKEN": "hunter2"}, "properties": {"pytest": "9.1", "shards": 3}}
    run = {"properties": {"dtype": "<b>bf16", "stack": "line 1", "sizes": [1, 2]}}
    await ran(github, {FILE: with_words(jsonl((*TEST, "failed")), head, run)}, conclusion="failure")
    await bot.settle(horizon=120)
    (one,), page = await failures(bot)
    assert one["flags"] == {"USE_NPU": "1", "HF_TOKEN": "(not kept)"}
    assert one["report_properties"] == {"pytest": "9.1", "shards": "3"}
    assert one["properties"] == {"dtype": "<b>bf16", "sizes": "[1,2]"}
    assert "USE_NPU=1" in page
    assert "dtype=&lt;b&gt;bf16" in page
    assert "hunter2" not in page


@SQLITE
async def test_of_many_and_long_ones_little_is_kept(bot, github):
    many = {f"name {number:04}" + "n" * 200: "é" * 500 for number in range(100)} | {"\0": "a\0b"}
    content = with_words(jsonl((*TEST, "failed")), {"flags": many, "properties": None}, {"properties": many})
    await ran(github, {FILE: content}, conclusion="failure")
    await bot.settle(horizon=120)
    ((one,), _) = await failures(bot)
    assert (len(one["flags"]), len(one["properties"]), one["report_properties"]) == (40, 20, {})
    assert max(len(name.encode()) for name in one["flags"]) == 100
    assert {len(value.encode()) for value in one["flags"].values()} <= {5, 200}


@SQLITE
async def test_a_test_at_its_time_limit_timed_out_and_counts_as_failed(bot, github):
    await ran(github, {FILE: jsonl((*TEST, "timed_out"))}, conclusion="failure")
    await bot.settle(horizon=120)
    (one,), page = await failures(bot)
    assert (one["outcome"], one["failed_attempts"]) == ("timed_out", 1)
    assert "timed out" in page
    (job,) = await bot.rows("test_job")
    assert (job["tests"], job["failed"], job["passed"]) == (1, 1, 0)
    assert [row["failures"] for row in await bot.rows("test_summary")] == [1]


@pytest.mark.parametrize(
    ("attributes", "child", "outcome"),
    [
        ("", '<failure type="test timeout"/>', "timed_out"),
        ("", '<failure message="Failed: Timeout (&gt;1.0s) from pytest-timeout."/>', "timed_out"),
        ("", '<failure message="Failed: Timeout &gt;1.0s"/>', "timed_out"),
        ('status="fail"', '<failure message="Timeout"/>', "timed_out"),
        ("", '<error type="org.junit.runners.model.TestTimedOutException" message="x"/>', "timed_out"),
        (
            "",
            '<error type="java.util.concurrent.TimeoutException" message="slow() timed out after 5 seconds"/>',
            "timed_out",
        ),
        ("", '<failure>thrown: "Exceeded timeout of 5000 ms for a test.</failure>', "timed_out"),
        ("", '<failure message="Timeout of 2000ms exceeded. For async tests"/>', "timed_out"),
        ('status="timeout"', "", "timed_out"),
        ("", '<error type="java.util.concurrent.TimeoutException" message="queue was empty"/>', "error"),
        ("", '<failure message="Timeout was not raised"/>', "failed"),
        ("", '<failure message="AssertionError: Timeout &gt;1.0s"/>', "failed"),
    ],
)
def test_junit_says_what_timed_out(tmp_path, attributes, child, outcome):
    report = tmp_path / "a.xml"
    report.write_text(f"<testsuite><testcase name='t' {attributes}>{child}</testcase></testsuite>")
    read = json.loads(CliRunner().invoke(main, ["tests", "read", str(report), "--json"]).output)
    assert read["cases"][0]["outcome"] == outcome
    assert read["counts"]["errors" if outcome == "error" else "failed"] == 1
