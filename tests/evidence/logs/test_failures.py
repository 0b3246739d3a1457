"""Failures that are the same: counted, with days and samples; and those of pull requests that are known elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from bot.ingest.tables import records
from tests.harness import L3, L4, UPSTREAM
from tests.jobs.branch import push
from tests.pages.page_checks import failures
from tests.serving import SQLITE

LINE = "FAILED t.py::test_x\n"


async def pushed(bot, sha, *, at=0):
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


async def page_of(bot, job):
    bot.clock.advance(60)  # a page may be kept for some seconds
    return (await bot.get(f"/{job.run.repo.full_name}/job/{job.id}"))[1]


@pytest.mark.logic
async def test_a_failure_that_the_branch_has_is_known(bot, logs):
    broken = await logs.arrives("FAILED t.py::test_x\n", trusted=True)
    same = await logs.arrives("FAILED t.py::test_x\n")
    assert "known:" not in (await bot.get(f"/{UPSTREAM}/job/{same.id}"))[1]  # not a commit of the branch yet
    event, body = push(bot, broken.run.head_sha)
    await bot.send(event, body)
    await bot.settle(horizon=15)
    bot.clock.advance(60)  # the page may be kept for some seconds
    _, page = await bot.get(f"/{UPSTREAM}/job/{same.id}")
    assert f"known: the same job failed with the same captures on main at {broken.run.head_sha[:12]}" in page
    assert f'href="/{UPSTREAM}/job/{broken.id}"' in page
    other = await logs.arrives("FAILED t.py::test_y\n")
    assert "known:" not in (await bot.get(f"/{UPSTREAM}/job/{other.id}"))[1]
    assert "known:" not in (await bot.get(f"/{UPSTREAM}/job/{broken.id}"))[1]


async def test_a_failure_that_the_base_of_a_pull_request_has_is_known_there(bot, github, logs):
    broken = await logs.arrives(LINE, trusted=True)
    for number in range(4):  # by now it is none of the newest heads
        await pushed(bot, f"{number:040x}")
    pull = await github.open_pull(UPSTREAM)
    assert pull.base_sha == broken.run.head_sha
    run = await github.start_run(UPSTREAM, event="pull_request", head_sha=pull.head_sha)
    job = await github.start_job(run, "build / test (default, 2, 2, linux)")
    await github.finish_job(job, "failure", log=LINE)
    await bot.settle(horizon=15)
    words = f"known: the same job failed with the same captures on its base at {broken.run.head_sha[:12]}"
    assert words in await page_of(bot, job)
    for page in (f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/commit/{pull.head_sha}"):
        (row,) = failures((await bot.get(page))[1])
        assert row[2].endswith(f"known {words.partition(': ')[2]}")


@pytest.mark.logic
async def test_of_several_failing_tests_all_have_to_be_known(bot, logs):
    broken = await logs.arrives(LINE, trusted=True)
    await pushed(bot, broken.run.head_sha)
    more = await logs.arrives(LINE + "FAILED t.py::test_y\n" + LINE)
    assert "known:" not in await page_of(bot, more)
    assert "new:" not in await page_of(bot, more)  # the job fails there, too


@pytest.mark.logic
async def test_a_failure_of_a_job_that_passes_on_the_branch_is_new(bot, github, logs):
    run = await github.start_run(UPSTREAM, event="push")
    shards = [await github.start_job(run, f"build / test (default, {n}, 2, linux)") for n in (1, 2)]
    await github.finish_job(shards[0], "success")
    await pushed(bot, run.head_sha)
    job = await logs.arrives(LINE)
    assert "new:" not in await page_of(bot, job)  # a shard has not ended
    await github.finish_job(shards[1], "success")
    await bot.settle(horizon=15)
    assert f"new: the same job passes on main at {run.head_sha[:12]}" in await page_of(bot, job)


@pytest.mark.logic
async def test_a_failure_of_other_pull_requests_is_likely_not_the_change(bot, logs):
    jobs = [await logs.arrives(LINE, branch=f"topic-{n}") for n in range(2)]
    assert "likely" not in await page_of(bot, jobs[0])
    jobs.append(await logs.arrives(LINE, branch="topic-3"))
    words = "likely flaky or infrastructure: the same failure on 2 other pull requests within a day"
    assert words in await page_of(bot, jobs[0])
    late = await logs.arrives(LINE, branch="late")
    await logs.arrives(LINE, trusted=True)
    assert "likely" not in await page_of(bot, late)


@pytest.mark.logic
async def test_a_backends_runs_have_a_baseline_of_their_own(bot, github, logs):
    Path(bot.context.settings.allowlist).write_text(f"L4: [{{repo: {L4}, events: [pull_request, push]}}]")
    bot.clock.advance(61)
    await bot.settle()
    sha = await github.push(UPSTREAM)
    await bot.settle(horizon=15)
    of_push = bot.dispatch(L4)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    jobs = []
    for dispatch in (of_push, bot.dispatch(L4)):
        run = await github.start_run(L4, event="repository_dispatch", name="CI")
        job = await github.start_job(run, "test (1, 2)")
        await bot.report(dispatch, conclusion="failure", run_id=str(run.id))
        await github.finish_job(job, "failure", log=LINE)
        await bot.settle(horizon=15)
        jobs.append(job)
    trusted = {row["job_id"]: row["trusted"] for row in await bot.rows("ci_verdict")}
    assert trusted == {jobs[0].id: True, jobs[1].id: False}
    page = await page_of(bot, jobs[1])
    assert "known: the same job failed with the same captures on " in page
    assert sha[:12] in page
    assert f'href="/{L4}/job/{jobs[0].id}"' in page
    (row,) = failures((await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1])
    assert "the same job failed with the same captures on " in row[2]
    about = {"id": github.state.repo(UPSTREAM).id, "full_name": UPSTREAM, "private": True}
    await bot.send(
        "repository", {"action": "privatized", "repository": about | {"updated_at": "2030-01-01T00:00:00Z"}}
    )
    await bot.settle(horizon=15)
    page = await page_of(bot, jobs[1])  # the backend is public, its page shows no commit of upstream
    assert "FAILED t.py::test_x" in page
    assert sha[:12] not in page
