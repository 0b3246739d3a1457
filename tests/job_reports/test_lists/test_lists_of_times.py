"""Times of tests: from the artifact of a trusted run to the file that CI fetches."""

from __future__ import annotations

import pytest

from bot.job_reports.feature import JobReportSettings
from bot.job_reports.test_lists import make_time_lists
from tests.evidence.tests.reported import case, ran, xml
from tests.harness import L3, UPSTREAM

JOB = "linux-jammy / test (default, {shard}, 2, linux.large)"
HORIZON = 120


def report(*cases, folder="test_ops"):
    """An artifact in PyTorch's layout: what launched the tests is the folder."""
    return {f"test/test-reports/python-pytest/{folder}/a.xml": xml(*cases)}


async def look(bot):
    await bot.settle(horizon=HORIZON)
    await bot.wait(2 * make_time_lists.EVERY)
    await bot.settle(horizon=HORIZON)


async def listed(bot, name="test-times", query="", repo=UPSTREAM):
    status, body = await bot.get(f"/api/ci/{repo}/{name}.json{query}")
    return body if status == 200 else (status, body["error"])


@pytest.mark.logic
async def test_times_of_trusted_runs_become_lists(bot, github):
    cases = (case("test_a", time="90"), case("test_b", suite="Other", time="2.5"))
    await ran(github, report(*cases), name=JOB.format(shard=1))
    await ran(
        github, report(case("test_c", time="900"), folder="fork"), event="pull_request", head_branch="main"
    )
    await look(bot)
    in_file = {"test_ops": 92.5}
    assert await listed(bot) == {
        "linux-jammy": {"default": in_file},
        "default": {"default": in_file},
    }
    assert (await listed(bot, "test-class-times"))["linux-jammy"]["default"] == {
        "test_ops": {"Other": 2.5, "TestOps": 90.0}
    }
    assert await listed(bot, "slow-tests") == {"test_a (__main__.TestOps)": 90.0}
    assert await listed(bot, "shards", "?n=2&tests=test_ops,new") == {
        "ok": True,
        "shards": [{"tests": ["new"], "seconds": 92.5}, {"tests": ["test_ops"], "seconds": 92.5}],
        "unknown": ["new"],
    }
    status, answer = await bot.request(
        "POST", f"/api/ci/{UPSTREAM}/shards.json?n=1&base=linux-jammy&config=default", json=["test_ops"]
    )
    assert (status, answer["shards"]) == (200, [{"tests": ["test_ops"], "seconds": 92.5}])
    assert await listed(bot, query=f"?backend={L3}") == (404, "unknown_repository")


@pytest.mark.logic
async def test_what_was_not_measured_again_stays_and_old_jobs_go(bot, github):
    await ran(github, report(case("test_a", time="4")), name="old / test (default)")
    await look(bot)
    bot.clock.advance(20 * 86_400)
    await ran(github, report(case("test_a", time="6"), folder="new"), name="linux-jammy / test (default)")
    await look(bot)
    first = await listed(bot)
    assert first["old"]["default"] == {"test_ops": 4.0}
    assert first["default"]["default"] == {"new": 6.0, "test_ops": 4.0}
    shards = await listed(bot, "shards", "?n=1")
    assert shards["shards"] == [{"tests": ["new", "test_ops"], "seconds": 10.0}]
    bot.clock.advance(20 * 86_400)
    for _ in range(3):
        await ran(github, report(case("test_a", time="8")), name="linux-jammy / test (default)")
    await look(bot)
    assert await listed(bot) == {
        "linux-jammy": {"default": {"new": 6.0, "test_ops": 8.0}},
        "default": {"default": {"new": 6.0, "test_ops": 8.0}},
    }
    assert (await listed(bot, "shards", "?n=1"))["shards"] == [
        {"tests": ["test_ops", "new"], "seconds": 14.0}
    ]


@pytest.mark.logic
async def test_commits_whose_jobs_still_run_do_not_count(bot, github):
    sha = await github.push(UPSTREAM)
    run, _ = await ran(github, report(case("test_a", time="4")), head_sha=sha)
    await github.start_job(run, "another")
    await look(bot)
    assert await listed(bot) == (404, "no_list")


@pytest.mark.parametrize(
    ("query", "body"),
    [("", []), ("?n=0", []), ("?n=1001", []), ("?n=1", {}), ("?n=1", [""]), ("?n=1", ["x"] * 20_001)],
)
@pytest.mark.logic
async def test_refused_questions(bot, query, body):
    status, answer = await bot.request("POST", f"/api/ci/{UPSTREAM}/shards.json{query}", json=body)
    assert (status, answer["ok"]) == (400, False)


class TestBranch:
    """With a branch that follows only good commits."""

    @pytest.fixture
    def options(self, options):
        return options | {JobReportSettings: JobReportSettings(ci_times_branch="viable/strict")}

    @pytest.mark.logic
    async def test_its_commits_alone_count(self, bot, github):
        good = await github.push(UPSTREAM)
        await ran(github, report(case("test_a", time="4")), head_sha=good)
        await ran(github, report(case("test_a", time="400")), head_sha=await github.push(UPSTREAM))
        await look(bot)
        assert await listed(bot) == (404, "no_list")
        viable = await github.push(UPSTREAM, "viable/strict")
        await ran(github, report(case("test_a", time="5")), head_sha=viable)
        await look(bot)
        assert (await listed(bot))["default"] == {"default": {"test_ops": 5.0}}
