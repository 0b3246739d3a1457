"""What ran: files beside the usual, jobs that ran little, what was left out on purpose, what selection missed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bot.evidence.tests import failing
from bot.job_reports.running_jobs import calls_of_a_pass
from bot.jobs.settings import CollectSettings
from tests import harness
from tests.harness import L3, UPSTREAM
from tests.job_reports.conftest import NAME, examples


def junit(files, *, failed=(), flaky=()):
    """A report: tests by file, each `test_0` and so on in the class `T`."""
    cases = [
        f"<testcase file='{file}' classname='T' name='test_{number}' time='0.5'>{_child(f'{file}::{number}', failed, flaky)}</testcase>"
        for file, count in files.items()
        for number in range(count)
    ]
    return f"<testsuite name='pytest'>{''.join(cases)}</testsuite>".encode()


def _child(name, failed, flaky):
    if name in failed:
        return "<failure message='boom'/>"
    return "<rerun message='once more'/>" if name in flaky else ""


@pytest.fixture
def reports(jobs, github, bot):
    async def arrive(report, *, trusted=True, left_out=(), sha=None, conclusion="success", **given):
        event = {"event": "push"} if trusted else {"event": "pull_request", "head_branch": "topic"}
        if trusted and sha is None:
            sha = await github.push(UPSTREAM)
        run = await github.start_run(UPSTREAM, head_sha=sha, **event | given)
        job = await github.start_job(run, NAME)
        await github.start_job(run, NAME.replace("1, 2", "2, 2"))
        bot.clock.advance(600)
        github.add_artifact(run, f"test-reports_{job.id}", {"junit.xml": report})
        if left_out:
            excluded = json.dumps({"excluded": [{"test_file": file} for file in left_out]}).encode()
            github.add_artifact(run, f"test-jsons-runattempt1-{job.id}", {"td_exclusions.json": excluded})
        for one in [one for one in run.repo.jobs.values() if one.run is run]:
            await github.finish_job(one, conclusion if one is job else "success")
        await github.finish_run(run, conclusion)
        await bot.settle(horizon=120)
        return run

    return arrive


async def test_files_stand_beside_those_of_the_newest_trusted_run(bot, reports):
    for _ in range(3):
        await reports(junit({"test/test_a.py": 10, "test/test_b.py": 4, "test/test_c.py": 2}))
    run = await reports(
        junit({"test/test_a.py": 4, "test/test_d.py": 1}, flaky=["test/test_d.py::0"]),
        trusted=False,
        left_out=["test/test_b"],
    )
    status, answer = await bot.get(f"/api/ci/runs/{UPSTREAM}/{run.id}/ran")
    assert status == 200
    (summary,) = [each["default"] for each in answer["invoking_file_summary"].values()]
    assert {file: (one["change"], one["count"], one["usual"]) for file, one in summary.items()} == {
        "test/test_c.py": ("gone", 0, 2),
        "test/test_a.py": ("fewer", 4, 10),
        "test/test_b.py": ("left_out", 0, 4),
        "test/test_d.py": ("new", 1, 0),
    }
    assert answer["td_exclusions"] == {"linux-jammy": {"default": ["test_b"]}}
    (rerun,) = answer["reruns"]["linux-jammy"]["default"]["test/test_d.py"]["T"]["test_0"]
    assert (rerun["attempts"], rerun["outcome"]) == (2, "flaky")
    status, page = await bot.get(f"/{UPSTREAM}/run/{run.id}/ran")
    assert status == 200
    assert page.index("test_c.py") < page.index("test_a.py") < page.index("test_d.py")
    _, page = await bot.get(f"/{UPSTREAM}/run/{run.id}")
    assert "5 tests ran: file by file" in page
    assert "1 files left out by selection" in page
    assert "passed, but ran 5 of 16 tests" in page


@pytest.mark.logic
@pytest.mark.nightly
async def test_a_job_that_left_out_what_it_usually_runs_is_not_held_against_it(bot, reports):
    for _ in range(3):
        await reports(junit({"test/test_a.py": 2, "test/test_b.py": 40}))
    run = await reports(junit({"test/test_a.py": 2}), trusted=False, left_out=["test/test_b"])
    _, answer = await bot.get(f"/api/ci/runs/{UPSTREAM}/{run.id}/ran")
    assert list(answer["few"].values()) == ["ran 2 of 42 tests, 1 files left out by selection"]


@pytest.mark.logic
async def test_what_selection_missed_is_named_with_its_pull_request(bot, reports, github):
    for _ in range(3):
        await reports(junit({"test/test_a.py": 2, "test/test_b.py": 2}))
    pull = await github.open_pull(UPSTREAM)
    left = await reports(
        junit({"test/test_a.py": 2}),
        trusted=False,
        left_out=["test/test_b"],
        sha=pull.head_sha,
        head_branch=pull.head_ref,
    )
    merged = await github.merge(pull)
    run = await reports(
        junit({"test/test_a.py": 2, "test/test_b.py": 2}, failed=["test/test_b.py::1"]),
        sha=merged,
        conclusion="failure",
    )
    await bot.wait(3_700)
    (miss,) = await bot.rows("td_miss")
    assert (miss["pr_number"], miss["file"], miss["left_out_run_id"]) == (
        pull.number,
        "test/test_b.py",
        left.id,
    )
    _, answer = await bot.get(f"/api/ci/runs/{UPSTREAM}/{run.id}/ran")
    assert [one["name"] for one in answer["missed"]] == ["test_1"]
    _, page = await bot.get(f"/{UPSTREAM}/run/{run.id}")
    assert f"test_1 failed here, and #{pull.number} had left test/test_b.py out" in page


@pytest.mark.logic
async def test_a_run_without_reports_says_so_and_an_unknown_one_is_404(bot, github):
    run = await github.start_run(UPSTREAM, event="push")
    await bot.settle()
    _, page = await bot.get(f"/{UPSTREAM}/run/{run.id}/ran")
    assert "No test report of this run is known" in page
    assert (await bot.get(f"/{UPSTREAM}/run/77/ran"))[0] == 404
    assert (await bot.get(f"/api/ci/runs/{UPSTREAM}/77/ran"))[0] == 404


def test_few_tests_are_told_of_as_the_docs_say():
    for example in examples("What ran")[0]:
        little = failing.compare_with_usual(example["ran"], example["usual"])
        if example["files"]:
            little = failing.explain_by_exclusions(little, example["files"], example["left_out"])
        assert str(little) == example["says"]


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


async def test_each_move_of_the_last_good_commit_is_kept_once(bot, github):
    async def push(conclusion):
        sha = await github.push(UPSTREAM)
        run = await github.start_run(UPSTREAM, event="push", head_sha=sha)
        job = await github.start_job(run, "build")
        await github.finish_job(job, conclusion)
        await github.finish_run(run, conclusion)
        await bot.wait(1_300)
        return sha

    first = await push("success")
    await push("failure")
    last = await push("success")
    _, answer = await bot.get(f"/api/ci/stable/{UPSTREAM}")
    assert [one["sha"] for one in answer["stable_pushes"]] == [last, first]
    assert answer["stable_pushes"][0]["repository"] == UPSTREAM
    status, page = await bot.get(f"/{UPSTREAM}/stable")
    assert status == 200
    assert f'href="/{UPSTREAM}/commit/{last}"' in page
    assert (await bot.get("/api/ci/stable/no/where"))[0] == 404
