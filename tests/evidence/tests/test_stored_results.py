"""From an artifact of a finished run to rows: jobs, tests, failures."""

from __future__ import annotations

import pytest

from tests.evidence.tests.reported import case, jsonl, known_tests, outcomes, ran, xml
from tests.harness import L3, UPSTREAM
from tests.serving import SQLITE

HORIZON = 120  # seconds in which a run's artifacts are listed, fetched and merged


@pytest.mark.logic
async def test_reports_of_a_finished_run_become_rows(bot, github):
    report = xml(
        case("test_add"),
        case("test_mul", "failed", message="3 != 4"),
        case("test_div", "flaky", time="1.5"),
        case("test_new", "skipped"),
    )
    run, job = await ran(github, {"a.xml": report, "broken.xml": b"<testsuite><testcase"})
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert (row["run_id"], row["job_id"], row["head_sha"]) == (run.id, job.id, run.head_sha)
    counts = {name: row[name] for name in ("tests", "passed", "failed", "skipped", "flaky", "files")}
    assert counts == {"tests": 4, "passed": 2, "failed": 1, "skipped": 1, "flaky": 1, "files": 1}
    assert (row["family"], row["base_name"], row["config"], row["shard"], row["shards"]) == (
        "CI / linux-jammy-py3.10-cuda / test (default)", "linux-jammy-py3.10-cuda", "default", 1, 2,
    )  # fmt: skip
    assert row["unreadable"] == [{"member": "broken.xml", "reason": "truncated at line 1"}]
    assert await outcomes(bot) == [
        ("test_add", "passed", 1, 250),
        ("test_div", "passed", 2, 1500),
        ("test_mul", "failed", 1, 250),
        ("test_new", "skipped", 1, 250),
    ]
    names = await known_tests(bot)
    failures = {names[one["test_id"]][2]: one for one in await bot.rows("test_failure")}
    assert {
        name: (one["flaky"], one["attempts"], one["failed_attempts"]) for name, one in failures.items()
    } == {
        "test_mul": (False, 1, 1),
        "test_div": (True, 2, 1),
    }
    assert (failures["test_mul"]["message"], failures["test_mul"]["stack"]) == ("3 != 4", "line 1\nline 2")
    (env,) = await bot.rows("test_env")
    assert (env["os"], env["accelerator"], env["python"], env["env_group"]) == (
        "linux", "cuda", "3.10", "linux cuda default",
    )  # fmt: skip
    (summary,) = await bot.rows("test_summary") if row["trusted"] else (None,)
    assert summary is None or (summary["tests"], summary["failures"], summary["flaky"]) == (4, 1, 1)


@SQLITE
async def test_a_backend_on_another_ci_uploads_a_report(bot, github, upload):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    payload = await upload(L3, xml(case("test_add"), case("test_old", file="other.py")))
    npu = jsonl(("test_ops.py", "TestOps", "test_add_npu", "failed"), accelerator="npu")
    await upload(L3, npu, kind="runreport")
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert (row["backend"], row["upstream_repo"], row["trusted"]) == (L3, UPSTREAM, False)
    assert row["upstream_sha"] == payload["payload"]["pull_request"]["head"]["sha"]
    assert max(row["run_id"], row["job_id"]) < 0
    # a run report knows test_ops.py: JUnit says nothing of it
    assert await outcomes(bot) == [("test_add_npu", "failed", 1, 50), ("test_old", "passed", 1, 250)]
    assert [env["accelerator"] for env in await bot.rows("test_env")] == ["npu"]


@SQLITE
async def test_a_stranger_cannot_fill_the_list_of_tests(bot, github):
    pull = await github.open_pull(UPSTREAM)
    names = "".join(f'<testcase classname="c" name="t{number}"/>' for number in range(50_001))
    await ran(github, {"a.xml": xml(names)}, event="pull_request", head_sha=pull.head_sha, head_branch="main")
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert (row["tests"], row["passed"]) == (50_001, 50_001)
    assert row["unreadable"] == [
        {"member": "all reports", "reason": "over 50,000 tests that no trusted run had"}
    ]
    assert await bot.rows("test") == []
