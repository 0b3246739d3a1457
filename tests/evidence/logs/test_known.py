"""Failures of pull requests that are known elsewhere: a word on their pages, with what shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import L4, UPSTREAM
from tests.jobs.branch import push
from tests.pages.page_checks import failures

LINE = "FAILED t.py::test_x\n"


async def pushed(bot, sha):
    event, body = push(bot, sha)
    await bot.send(event, body)
    await bot.settle(horizon=15)


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
