"""Failures that are the same: counted, with days and samples, as page and JSON."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from bot.ingest.tables import records
from tests.harness import L3, UPSTREAM
from tests.jobs.branch import push
from tests.serving import SQLITE


async def pushed(bot, sha, *, at):
    event, body = push(bot, sha, at=at)
    await bot.send(event, body)
    await bot.settle(horizon=15)


async def test_failures_that_are_the_same_stand_together(bot, logs):
    for branch in ("a", "b"):
        job = await logs.arrives("make: *** [Makefile:3: all] Error 2\n", branch=branch)
    await logs.arrives("FAILED t.py::test_x\n")
    status, page = await bot.get("/failures")
    assert status == 200
    assert page.index("make: all") < page.index("pytest failure: t.py::test_x")
    _, answer = await bot.get("/api/ci/failures")
    assert next((one["title"], one["jobs"], one["prs"]) for one in answer["failures"]) == ("make: all", 2, 2)
    assert (answer["classified_jobs"], answer["named_jobs"]) == (3, 3)
    assert [one["jobs_by_day"] for one in answer["failures"]] == [[0] * 13 + [2], [0] * 13 + [1]]
    assert 'aria-label="jobs by day, the last 14 days: 0, ' in page
    signature = answer["failures"][0]["signature"]
    _, answer = await bot.get(f"/api/ci/failures/{signature}")
    assert [day["jobs"] for day in answer["by_day"]] == [2]
    assert answer["samples"][0]["job_id"] == job.id
    _, page = await bot.get(f"/failures/{signature}")
    assert f"/{UPSTREAM}/job/{job.id}" in page
    assert (await bot.get("/api/ci/failures?kind=test"))[1]["failures"][0]["rule"] == "pytest failure"
    assert (await bot.get("/api/ci/failures?repo=org/unknown"))[1]["failures"] == []
    assert (await bot.get(f"/failures/{'0' * 64}"))[0] == 404


@pytest.mark.logic
async def test_a_repository_that_turns_private_takes_its_failures_along(bot, github, logs):
    for _ in range(2):
        await logs.arrives("FAILED t.py::test_shared\n")
        job = await logs.arrives("FAILED t.py::test_shared\n", repo=L3)
    await logs.arrives("FAILED t.py::test_unannounced\n", repo=L3)
    _, answer = await bot.get("/api/ci/failures")
    assert {one["title"]: one["jobs"] for one in answer["failures"]} == {
        "pytest failure: t.py::test_shared": 4,
        "pytest failure: t.py::test_unannounced": 1,
    }
    signatures = {one["title"].rpartition("_")[2]: one["signature"] for one in answer["failures"]}
    repo = {"id": job.run.repo.id, "full_name": L3, "private": True, "updated_at": "2030-01-01T00:00:00Z"}
    async with bot.store.transaction() as tx:  # as between the news and the task that follows it
        same = records["repository"].c.repository_id == repo["id"]
        await tx.run(sa.update(records["repository"]).where(same).values(private=True))
    for path in ("/failures", "/api/ci/failures", "/failures?repo=" + L3):
        assert "test_" not in str((await bot.get(path))[1])
    assert (await bot.get(f"/failures/{signatures['shared']}"))[0] == 404
    assert (await bot.get("/api/ci/failures"))[1]["classified_jobs"] == 2
    await bot.send("repository", {"action": "privatized", "repository": repo})
    await bot.settle()
    _, answer = await bot.get("/api/ci/failures")
    assert [(one["title"].rpartition("_")[2], one["jobs"]) for one in answer["failures"]] == [("shared", 2)]
    assert answer["classified_jobs"] == 2
    _, answer = await bot.get(f"/api/ci/failures/{signatures['shared']}")
    assert (answer["failure"]["jobs_total"], answer["by_day"][0]["repos"]) == (2, 1)
    assert {one["repo"] for one in answer["samples"]} == {UPSTREAM}
    for path in ("/failures/", "/api/ci/failures/"):
        assert (await bot.get(path + signatures["unannounced"]))[0] == 404


@pytest.mark.logic
async def test_a_failure_says_where_it_happens_and_between_which_commits_it_began(bot, github, logs):
    good = await github.start_run(UPSTREAM, event="push")
    passed = await github.start_job(good, "build / test (default, 1, 2, a.linux)")
    await github.finish_job(passed, "success")
    await pushed(bot, good.head_sha, at=-10)
    first = await github.push(UPSTREAM)
    await bot.settle(horizon=15)
    run = await github.start_run(UPSTREAM, event="push", head_sha=first)
    job = await github.start_job(run, "build / test (default, 1, 2, a.linux)")
    await github.finish_job(job, "failure", log="FAILED t.py::test_x\n")
    await logs.arrives("FAILED t.py::test_x\n", repo=L3)  # of a job that names no runner
    signature = (await bot.get("/api/ci/failures"))[1]["failures"][0]["signature"]
    _, answer = await bot.get(f"/api/ci/failures/{signature}")
    assert answer["began"] == [
        {
            "repo": UPSTREAM, "job": "CI / build / test (default)", "upstream": UPSTREAM, "branch": "main",
            "last_good": good.head_sha, "first_bad": first,
        }
    ]  # fmt: skip
    assert {one["name"]: one["trusted_jobs"] for one in answer["by_repo"]} == {UPSTREAM: 1, L3: 0}
    assert {one["name"] for one in answer["by_job"]} == {
        "CI / build / test (default)", "CI / build / test (default, linux)"
    }  # fmt: skip
    assert sum(one["jobs"] for one in answer["by_label"]) == 2
    _, page = await bot.get(f"/failures/{signature}")
    assert f'between <a href="/{UPSTREAM}/commit/{good.head_sha}">' in page
    await github.finish_job(
        await github.start_job(good, "build / test (default, 1, 2, b.linux)"), "failure", log="x\n"
    )
    await bot.settle(horizon=15)
    assert (await bot.get(f"/api/ci/failures/{signature}"))[1][
        "began"
    ] == []  # it failed before, for what reason ever


@SQLITE
async def test_a_failure_after_commits_without_results_began_with_its_commit_at_the_latest(bot, github, logs):
    good = await github.start_run(UPSTREAM, event="push")
    await github.finish_job(await github.start_job(good, "build"), "success")
    await pushed(bot, good.head_sha, at=-10)
    await github.push(UPSTREAM)
    first = await github.push(UPSTREAM)
    await bot.settle(horizon=15)
    run = await github.start_run(UPSTREAM, event="push", head_sha=first)
    await github.finish_job(await github.start_job(run, "build"), "failure", log="FAILED t.py::test_x\n")
    await bot.settle(horizon=15)
    signature = (await bot.get("/api/ci/failures"))[1]["failures"][0]["signature"]
    (began,) = (await bot.get(f"/api/ci/failures/{signature}"))[1]["began"]
    assert (began["last_good"], began["first_bad"]) == (good.head_sha, first)
    _, page = await bot.get(f"/failures/{signature}")
    assert f"<code>{first[:12]}</code></a> at the latest; it passed on" in page


async def test_how_often_a_failure_happens_of_all_runs_of_its_jobs(bot, github, logs):
    for conclusion in ("success", "success", "success", "skipped"):
        run = await github.start_run(UPSTREAM, event="pull_request", head_branch="topic")
        for shard in (1, 2):
            job = await github.start_job(run, f"build / test (default, {shard}, 2, linux)")
            await github.finish_job(job, conclusion)
        await github.finish_job(await github.start_job(run, "another job"), "success")
    await logs.arrives("FAILED t.py::test_x\n")
    await logs.arrives("FAILED t.py::test_x\n", conclusion="timed_out", branch="b")
    await logs.arrives("FAILED t.py::test_other\n")
    await logs.arrives("FAILED t.py::test_x\n", repo=L3)
    failures = {one["title"]: one for one in (await bot.get("/api/ci/failures"))[1]["failures"]}
    one = failures["pytest failure: t.py::test_x"]
    assert (one["jobs"], one["rate"]) == (3, {"jobs": 3, "runs": 10})
    assert failures["pytest failure: t.py::test_other"]["rate"] == {"jobs": 1, "runs": 9}
    assert (await bot.get("/api/ci/failures"))[1]["rate_days"] == 14
    _, page = await bot.get("/failures")
    assert '<td class="n">3 of 10</td><td class="n">30 %</td>' in page
    address = f"/failures/{one['signature']}"
    name = "CI / build / test (default, linux)"  # without the shard; what comes last is no runner's name
    assert (await bot.get(f"/api/ci{address}"))[1]["rates"] == [
        {"repo": UPSTREAM, "job": name, "jobs": 2, "runs": 9},
        {"repo": L3, "job": name, "jobs": 1, "runs": 1},
    ]
    _, page = await bot.get(address)
    assert "In all 3 of 10 (30 %)" in page
    assert f'{UPSTREAM} · {name}</bdi></th><td class="n">2 of 9</td><td class="n">22.2 %</td>' in page
    bot.clock.advance(20 * 86_400)
    assert (await bot.get(f"/api/ci{address}"))[1]["failure"]["rate"] == {"jobs": 3, "runs": 10}
    _, answer = await bot.get("/api/ci/failures?days=90")
    assert (answer["rate_days"], answer["failures"][0]["rate"]) == (30, {"jobs": 3, "runs": 10})
    _, answer = await bot.get("/api/ci/failures?days=20")
    assert answer["rate_days"] == 30
    bot.clock.advance(20 * 86_400)  # those days are over
    _, answer = await bot.get(f"/api/ci{address}")
    assert (answer["failure"]["rate"], answer["rates"]) == (None, [])
    assert "How often" not in (await bot.get(address))[1]
