"""What CI left, under upstream's keys and with upstream's lines: tests, logs, verdicts, machines, artifacts, columns."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bot.jobs.settings import CollectSettings
from bot.sinks.settings import SinksSettings, parse_sinks
from tests import harness
from tests.evidence.tests.reported import case, ran, xml
from tests.evidence.usage.logs_of_usage import START, metadata, record, text
from tests.harness import UPSTREAM
from tests.sinks.stored import copies_of, files, lines

WHAT = ("tests", "utilization", "logs", "verdicts", "artifacts", "trunk", "lists")
HORIZON = 200  # seconds in which a run's artifacts are listed, fetched, merged and sent


@pytest.fixture
async def bot(settings, folder, github, issuer, clock):
    sinks = SinksSettings(sinks=parse_sinks(json.dumps({"copies": copies_of(folder, *WHAT)})))
    of_features = {CollectSettings: CollectSettings(), SinksSettings: sinks}
    async with harness.running(
        replace(settings, of_features=of_features), github=github, issuer=issuer, app=github.app, clock=clock,
        begun=True,
    ) as made:  # fmt: skip
        await made.context.github.tokens.get(UPSTREAM, {"actions": "read"})
        clock.advance(10)
        yield made


@pytest.mark.logic
async def test_test_results_leave_as_upstreams_documents(bot, github, folder):
    report = xml(
        case("test_add"), case("test_mul", "failed", message="3 != 4"), case("test_div", "flaky"),
        case("test_new", "skipped"),
    )  # fmt: skip
    run, job = await ran(github, {"a.xml": report})
    await bot.settle(horizon=HORIZON)
    stored = files(folder / "copies")
    of_run = {"job_id": job.id, "workflow_id": run.id, "workflow_run_attempt": 1}
    (suite,) = lines(stored[f"test_run_summary/{run.id}/1"])
    assert suite == {
        "classname": "TestOps", "file": "test_ops.py", "invoking_file": "test_ops.py", "tests": 4, "failures": 1,
        "errors": 0, "skipped": 1, "successes": 2, "time": 1.0, **of_run,
    }  # fmt: skip
    failed = {one["name"]: one for one in lines(stored[f"failed_test_runs/{run.id}/1"])}
    assert set(failed) == {"test_mul", "test_div"}
    assert failed["test_mul"]["failure"] == {
        "type": "AssertionError", "message": "3 != 4", "text": "line 1\nline 2",
    }  # fmt: skip
    assert "rerun" in failed["test_div"]
    cases = {one["name"]: one["result"] for one in lines(stored[f"test_run/{run.id}/1"])}
    assert cases == {
        "test_add": "success",
        "test_div": "success",
        "test_mul": "failure",
        "test_new": "skipped",
    }
    listed = [
        lines(content)[0]
        for key, content in stored.items()
        if key.startswith(f"artifacts/{UPSTREAM}/{run.id}/")
    ]
    assert [one["name"].startswith("test-reports") for one in listed] == [True]
    columns = [lines(content)[0] for key, content in stored.items() if key.startswith(f"columns/{UPSTREAM}/")]
    assert {one["base_name"] for one in columns} == {"linux-jammy-py3.10-cuda"}


@pytest.mark.logic
async def test_a_pull_requests_cases_that_passed_do_not_leave(bot, github, folder):
    run, _ = await ran(github, {"a.xml": xml(case("test_add"))}, event="pull_request", head_branch="topic")
    await bot.settle(horizon=HORIZON)
    stored = files(folder / "copies")
    assert f"failed_test_runs/{run.id}/1" in stored
    assert f"test_run/{run.id}/1" not in stored


@pytest.mark.logic
async def test_logs_leave_masked_with_the_conclusion_of_their_job(bot, github, folder):
    secret = "ghp_" + "A1b2" * 9
    log = f"2026-11-22T10:00:00.0000000Z a {secret} b\n2026-11-22T10:00:01.0000000Z ##[error]broken\n"
    run = await github.start_run(UPSTREAM, event="pull_request")
    job = await github.start_job(run, "build")
    await github.finish_job(job, "failure", log=log)
    await bot.settle(horizon=HORIZON)
    stored = files(folder / "copies")
    sent = stored[f"log/{UPSTREAM}/{job.id}"]
    assert b"a *** b" in sent
    assert secret.encode() not in b"".join(stored.values())
    verdicts = lines(stored[f"verdicts/{UPSTREAM}/{job.id}"])
    assert (verdicts[0]["rank"], verdicts[0]["job_id"]) == (0, job.id)


@pytest.mark.logic
async def test_machines_leave_as_two_documents(bot, github, folder):
    run = await github.start_run(UPSTREAM, event="pull_request", head_branch="topic")
    job = await github.start_job(run, "build / test (default, 1, 2, npu.8)", ("npu.8",))
    records = [
        record(at, cpu=50.0, memory=40.0, gpus=[("A", 2.5)], commands=["python a.py"]) for at in (0, 5)
    ]
    name = f"usage-log-runattempt1-test-default-1-2-npu.8_{job.id}.zip"
    github.add_artifact(run, name, {"usage_log.txt": text(metadata(), *records).encode()})
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await bot.settle(horizon=HORIZON)
    stored = files(folder / "copies")
    place = f"v_1.5/{UPSTREAM}/{run.id}/1/{job.id}"
    (document,) = lines(stored[f"util_metadata/{place}/metadata"])
    assert (document["workflow_id"], document["job_id"], document["repo"]) == (run.id, job.id, UPSTREAM)
    assert document["segments"] == [
        {
            "level": "CMD_PYTHON",
            "name": "python a.py",
            "start_at": START,
            "end_at": START + 5,
            "extra_info": {},
        }
    ]
    series = lines(stored[f"util_timeseries/{place}/time_series"])
    assert [one["time_stamp"] for one in series] == [START, START + 5]
    data = json.loads(series[0]["json_data"])
    assert data["cpu"]["avg"] == 50.0
    assert data["gpu_usage"][0]["uuid"] == "A"
    assert data["gpu_usage"][0]["util_percent"]["avg"] == 2.5
