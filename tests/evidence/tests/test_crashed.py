"""Jobs that died before they reported: their files are named."""

from __future__ import annotations

import pytest

from tests.evidence.tests.reported import JOB, case, known_tests, leave, ran, xml
from tests.harness import UPSTREAM
from tests.serving import SQLITE

HORIZON = 3600
FILES = [f"test_{letter}.py" for letter in "abcd"]


def reports(*files):
    return {f"{file}.xml": xml(case("test_one", file=file)) for file in files}


async def trusted(bot, github, count):
    for _ in range(count):
        bot.clock.advance(3600)
        await github.push(UPSTREAM)
        await ran(github, reports(*FILES))
        await bot.settle(horizon=HORIZON)


async def crashed(bot):
    names = await known_tests(bot)
    return sorted(
        (names[row["test_id"]][0], names[row["test_id"]][2], row["verdict"])
        for row in await bot.rows("test_failure")
        if row["outcome"] == 7
    )


@pytest.mark.parametrize(
    ("before", "now", "conclusion", "expected"),
    [
        (3, ["test_a.py"], "failure", FILES[1:]),
        pytest.param(3, [], "timed_out", FILES, marks=pytest.mark.nightly),  # not one report
        pytest.param(3, FILES[:2], "failure", [], marks=pytest.mark.nightly),  # half of them
        (2, [], "failure", []),  # too few runs before
        (3, ["test_a.py"], "success", []),
    ],
)
@SQLITE
async def test_files_that_gave_no_report_are_named(bot, github, before, now, conclusion, expected):
    await trusted(bot, github, before)
    pull = await github.open_pull(UPSTREAM)
    run = await github.start_run(
        UPSTREAM, event="pull_request", head_sha=pull.head_sha, head_branch="feature"
    )
    job = await github.start_job(run, JOB)
    if now:
        await leave(github, run, job, reports(*now), conclusion=conclusion)
    else:
        await github.finish_job(job, conclusion)
        await github.finish_run(run, conclusion)
    await bot.settle(horizon=HORIZON)
    assert await crashed(bot) == [(file, "(no report)", "no_baseline") for file in expected]
    rows = [row for row in await bot.rows("test_job") if row["job_id"] == job.id]
    assert [row["crashed"] for row in rows] == ([len(expected)] if now or expected else [])


@SQLITE
@pytest.mark.parametrize("now", [pytest.param([], marks=pytest.mark.nightly), ["test_a.py"]])
async def test_files_are_missed_also_once_the_trusted_runs_are_known_later(bot, github, now):
    """A run on the branch that began before the failed job, and is collected after it."""
    await trusted(bot, github, 2)
    bot.clock.advance(3600)
    await github.push(UPSTREAM)
    third = await github.start_run(UPSTREAM, event="push")
    of_third = await github.start_job(third, JOB)
    bot.clock.advance(600)
    pull = await github.open_pull(UPSTREAM)
    run = await github.start_run(
        UPSTREAM, event="pull_request", head_sha=pull.head_sha, head_branch="feature"
    )
    job = await github.start_job(run, JOB)
    if now:
        await leave(github, run, job, reports(*now), conclusion="failure")
    else:
        await github.finish_job(job, "failure")
        await github.finish_run(run, "failure")
    await bot.settle(horizon=HORIZON)
    assert await crashed(bot) == []
    await leave(github, third, of_third, reports(*FILES))
    await bot.settle(horizon=HORIZON)
    assert [file for file, _, _ in await crashed(bot)] == [file for file in FILES if file not in now]


@SQLITE
async def test_a_job_of_another_name_is_not_missed(bot, github):
    await trusted(bot, github, 3)
    pull = await github.open_pull(UPSTREAM)
    run = await github.start_run(
        UPSTREAM, event="pull_request", head_sha=pull.head_sha, head_branch="feature"
    )
    job = await github.start_job(run, "lint")
    await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    await bot.settle(horizon=HORIZON)
    assert await crashed(bot) == []
