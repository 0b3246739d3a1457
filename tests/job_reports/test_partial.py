"""Results of runs that are not over: shown as so far, in no statistics, and replaced once there is all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.job_reports.running_jobs import calls_of_a_pass
from bot.jobs.settings import CollectSettings
from tests import harness
from tests.harness import L3, UPSTREAM
from tests.job_reports.conftest import NAME
from tests.job_reports.test_what_ran import junit


def listings(github):
    return [call for call in github.calls if call.path.endswith("/artifacts")]


async def test_what_a_job_leaves_while_it_runs_is_shown_so_far_and_then_replaced(bot, github):
    sha = await github.push(UPSTREAM)
    run = await github.start_run(UPSTREAM, event="push", head_sha=sha)
    job = await github.start_job(run, NAME)
    files = {"test/test_a.py": 5}
    github.add_artifact(run, f"test-reports_{job.id}-partial1", {"a.xml": junit({"test/test_a.py": 2})})
    github.add_artifact(
        run, f"test-reports_{job.id}-partial2", {"a.xml": junit(files, failed=["test/test_a.py::1"])}
    )
    github.add_artifact(
        run, f"ootbot-metrics-{job.id}-partial1", {"m.jsonl": b'{"metric": "a", "values": {"x": 1}}'}
    )
    await bot.wait(800)
    assert listings(github) == []  # it has not run for a quarter of an hour before the first pass
    await bot.wait(1_000)
    await bot.settle(horizon=60)
    (row,) = await bot.rows("test_job")
    assert (row["job_id"], row["tests"], row["failed"], row["partial"], row["trusted"]) == (
        job.id,
        5,
        1,
        True,
        False,
    )
    assert await bot.rows("ci_metric") == await bot.rows("test_day") == []
    _, page = await bot.get(f"/{UPSTREAM}/run/{run.id}")
    assert "so far 5 tests, 4 passed, 1 failed" in page
    github.add_artifact(run, f"test-reports_{job.id}", {"a.xml": junit({"test/test_a.py": 9})})
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await bot.settle(horizon=120)
    (row,) = await bot.rows("test_job")
    assert (row["tests"], row["failed"], row["partial"], row["trusted"]) == (9, 0, False, True)


@pytest.mark.logic
@pytest.mark.nightly
async def test_listing_running_runs_keeps_to_its_share_of_calls(settings, github, issuer, clock):
    assert calls_of_a_pass(2_000) * 6 <= 400
    chosen = replace(settings, of_features={CollectSettings: CollectSettings(ci_calls_per_hour=120)})
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        runs = [await github.start_run(UPSTREAM, event="push") for _ in range(9)]
        await bot.settle()
        bot.clock.advance(1_000)
        for _ in range(6):
            await bot.wait(600)
        calls = listings(github)
        assert 0 < len(calls) <= 24 + calls_of_a_pass(120)
        assert {call.path.split("/")[-2] for call in calls} == {str(run.id) for run in runs}


async def test_a_backend_may_say_how_far_its_tests_are(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L3)

    async def report(**counts):
        body = harness.report_body(
            dispatch, status="in_progress", conclusion=None, job="build", run_id="900", attempt=1
        )
        body["workflow"] |= {
            "test_results": counts,
            "failed_tests": [{"name": f"t{n}"} for n in range(counts["failed"])],
        }
        token = bot.issuer.mint(repository=dispatch.repo.full_name, run_id="900", audience="ootbot")
        headers = {"Authorization": f"Bearer {token}"}
        return await bot.request("POST", "/api/oot/callback", json=body, headers=headers)

    for passed, failed in ((100, 0), (2_100, 3), (500, 1)):  # the last one is late
        status, answer = await report(passed=passed, failed=failed)
        assert status == 200, answer
    (job,) = await bot.rows("oot_workflow_job")
    assert (job["status"], job["passed_tests"], job["failed_tests"]) == ("in_progress", 2_100, 3)
    assert [test["name"] for test in job["failed_tests_json"]] == ["t0", "t1", "t2"]
    _, page = await bot.get(f"/oot/{dispatch.repo.full_name}")
    assert "so far" in page
    assert pull.head_sha
