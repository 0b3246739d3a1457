"""The line of a backend's log that says why its job failed, in the comment and the check run of a pull request."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from bot.ingest.tables import records
from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
LOG = "+ make\na.cc:3:1: error: @octocat|`all`](https://evil.example) unknown\n"


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    return made


async def fails(bot, github, *, name="build", log=LOG):
    """A backend's job reports its failure and ends at GitHub, log included; returns it."""
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    job = await github.start_job(run, name)
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id))
    await github.finish_job(job, "failure", log=log)
    await github.finish_run(run, "failure")
    return job


def comment(github, pull):
    (one,) = [comment for comment in github.comments(pull) if comment.app is not None]
    return one.body


def check(github, pull):
    (one,) = [run for run in github.check_runs(UPSTREAM, pull.head_sha) if run.name == "oot / tpu"]
    return one.output


async def test_the_line_is_in_comment_and_check_run_within_a_minute(bot, github, pull):
    job = await fails(bot, github)
    await bot.wait(60)
    place = f"[line 2]({bot.context.settings.url}/{L4}/job/{job.id}/log?line=2#L2)"
    for text in (comment(github, pull), check(github, pull).summary, check(github, pull).text):
        (line,) = [one for one in text.splitlines() if place in one]
        assert line.startswith("build · ")
        assert "a.cc:3:1:" in line
        assert "@octocat" not in line
        assert "](https://evil.example" not in line


async def test_once_a_re_run_has_passed_pages_no_longer_say_why_the_job_failed(bot, github, pull):
    job = await fails(bot, github)
    await bot.wait(60)
    places = (f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/commit/{pull.head_sha}")
    for place in places:
        assert "Nothing has failed" not in (await bot.get(place))[1]
    github.begin_attempt(job.run)
    again = await github.start_job(job.run, "build")
    await bot.report(bot.dispatch(L4), conclusion="success", run_id=str(job.run.id), attempt=2)
    await github.finish_job(again, "success", log="fine\n")
    await github.finish_run(job.run, "success")
    await bot.wait(60)
    for place in places:
        assert "Nothing has failed" in (await bot.get(place))[1]
    own = await github.start_run(UPSTREAM, event="pull_request", name="lint", head_sha=pull.head_sha)
    await github.finish_job(await github.start_job(own, "lint"), "failure", log=LOG)
    await github.finish_run(own, "failure")
    await bot.wait(60)
    assert "Nothing has failed" not in (await bot.get(places[0]))[1]
    github.begin_attempt(own)
    await github.finish_job(await github.start_job(own, "lint"), "success", log="fine\n")
    await github.finish_run(own, "success")
    await bot.wait(60)
    assert "Nothing has failed" in (await bot.get(places[0]))[1]


async def test_a_backend_dispatched_again_is_no_longer_said_to_fail(bot, github, pull):
    await fails(bot, github)
    await bot.wait(60)
    bot.clock.advance(5)
    await github.comment(pull, "/oot run tpu", by="alice")
    await bot.wait(30)
    await bot.report(bot.dispatch(L4), conclusion="success", run_id="901")
    await bot.wait(60)
    assert "Nothing has failed" in (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]


async def test_the_step_is_named_where_the_lines_have_times(bot, github, pull):
    at = datetime.fromtimestamp(bot.clock.now() / 1000, UTC)
    await fails(bot, github, log=f"{at:%Y-%m-%dT%H:%M:%S}.0000000Z a.cc:3:1: error: x\n")
    await bot.wait(60)
    assert "[line 1 · in Run tests](" in comment(github, pull)
    assert "line 1 · in Run tests" in (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]


async def test_a_job_of_another_name_stands_under_its_backend(bot, github, pull):
    await fails(bot, github, name="build / inner", log="x" * 5000 + " FAILED\n##[error]" + "y" * 5000 + "\n")
    await bot.wait(60)
    (line,) = [one for one in comment(github, pull).splitlines() if "line 2]" in one]
    assert line.startswith("- **`build / inner`** · generic · ")
    assert 250 < line.count("y") <= 300


async def test_of_a_private_backend_it_says_only_that_the_log_is_private(bot, github, pull):
    job = await fails(bot, github, name="build / inner")
    await bot.wait(60)
    assert "a.cc:3:1" in comment(github, pull)
    assert "build / inner" in comment(github, pull)
    about = {"id": job.run.repo.id, "full_name": L4, "private": True, "updated_at": "2030-01-01T00:00:00Z"}
    await bot.send("repository", {"action": "privatized", "repository": about})
    await bot.wait(60)
    async with bot.store.read() as tx:
        same = records["repository"].c.repository_id == about["id"]
        assert (await tx.run(sa.select(records["repository"].c.private).where(same))).scalar() is True
    for text in (comment(github, pull), check(github, pull).summary, check(github, pull).text):
        assert "the log is private" in text
        assert "a.cc:3:1" not in text
        assert "inner" not in text
    for path in (f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/commit/{pull.head_sha}"):
        assert "inner" not in (await bot.get(path))[1]


async def test_the_kind_of_a_failure_stands_beside_the_pass_rate(bot, github, pull):
    dispatch, runs = bot.dispatch(L4), []
    logs = {"build": "##[error]The runner has received a shutdown signal.\n", "test": "FAILED t.py::test_x\n"}
    for name, log in logs.items():
        run = await github.start_run(L4, event="repository_dispatch", name="CI")
        job = await github.start_job(run, name)
        if name == "test":  # in any order
            await bot.report(dispatch, conclusion="failure", run_id=str(run.id), job=name)
        await github.finish_job(job, "failure", log=log)
        await bot.wait(60)
        runs.append(run)
    await bot.report(dispatch, conclusion="failure", run_id=str(runs[0].id), job="build")
    await bot.report(dispatch, conclusion="success", run_id="900", job="lint")
    await bot.wait(60)
    (backend,) = [one for one in (await bot.get("/api/oot/summary"))[1]["backends"] if one["repo"] == L4]
    assert (backend["failure"], backend["infra"]) == (2, 1)
    assert (round(backend["pass_rate"], 3), backend["pass_rate_without_infra"]) == (0.333, 0.5)
    assert "without 1 infrastructure failure<" in (await bot.get(f"/oot/{L4}"))[1]


async def test_jobs_of_upstream_make_no_comment(bot, github, pull, logs):
    run = await github.start_run(UPSTREAM, event="pull_request", head_sha=pull.head_sha)
    job = await github.start_job(run, "lint")
    await github.finish_job(job, "failure", log=LOG)
    await bot.wait(60)
    assert len(await bot.rows("ci_verdict")) == 1
    assert [one for one in github.comments(pull) if one.app is not None] == []


async def test_pages_say_no_more_why_a_job_failed_that_has_passed_since(bot, github, pull):
    job = await fails(bot, github)
    await bot.wait(60)
    pages = [f"/{UPSTREAM}/pull/{pull.number}", f"/{UPSTREAM}/commit/{pull.head_sha}"]
    for page in pages:
        assert "Nothing has failed" not in (await bot.get(page))[1]
    github.begin_attempt(job.run)
    again = await github.start_job(job.run, "build")
    await bot.report(bot.dispatch(L4), conclusion="success", run_id=str(job.run.id), attempt=2)
    await github.finish_job(again, "success", log="fine\n")
    await github.finish_run(job.run, "success")
    await bot.wait(60)
    for page in pages:
        assert "a.cc:3:1" not in (await bot.get(page))[1], page
