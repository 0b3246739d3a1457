"""What ran: files beside the usual, jobs that ran little, what was left out on purpose, what selection missed."""

from __future__ import annotations

import json

import pytest

from bot.evidence.tests import failing
from tests.harness import UPSTREAM
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
