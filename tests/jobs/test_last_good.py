"""The last good commit: absence of data makes nothing green."""

from __future__ import annotations

import itertools

import pytest

from tests.harness import L3, UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push
from tests.pages.page_checks import add_job
from tests.serving import SQLITE

API = f"/api/ci/{UPSTREAM}/last-good"


async def history(bot):
    await deliver(
        bot, push(bot, "A"), push(bot, "B", parent="A", at=9), push(bot, "C", parent="B", at=20),
        job(bot, "build", "A"), job(bot, "lint", "A"),
        job(bot, "build", "B", "failure", number=5), job(bot, "build", "B", number=6, attempt=2), job(bot, "lint", "B"),
        job(bot, "build", "C"), job(bot, "lint", "C", "failure"),
    )  # fmt: skip


@pytest.mark.logic
async def test_the_newest_commit_on_which_all_of_it_passed(bot):
    await history(bot)
    status, body = await bot.get(API)
    assert (status, body["sha"], body["columns"]) == (200, COMMITS["B"], 2)  # a second try counts
    assert (await bot.get(f"{API}?jobs=build&branch=main"))[1]["sha"] == COMMITS["C"]


@pytest.mark.logic
async def test_a_backend_has_to_have_passed_as_well(bot):
    await history(bot)
    status, body = await bot.get(f"{API}?backends={L3}")
    assert (status, body["error"]) == (404, "no_good_commit")
    assert L3 in body["detail"]
    await add_job(bot, pr_number=None, event_type="push", head_sha=COMMITS["A"], downstream_repo=L3)
    assert (await bot.get(f"{API}?backends={L3}"))[1]["sha"] == COMMITS["A"]


@SQLITE
@pytest.mark.parametrize("jobs", ["windows", "^x$"])
async def test_no_job_is_never_a_good_one(bot, jobs):
    await history(bot)
    assert (await bot.get(f"{API}?jobs={jobs}"))[1]["error"] == "no_good_commit"


@SQLITE
async def test_a_pattern_that_cannot_be_used_is_named(bot):
    await history(bot)
    status, body = await bot.get(f"{API}?jobs=(?=a)")
    assert (status, body["error"]) == (400, "invalid_parameter")
    assert "jobs" in body["detail"]


@SQLITE
async def test_a_commit_that_still_runs_is_not_good(bot):
    await deliver(
        bot,
        push(bot, "A"),
        push(bot, "B", parent="A", at=9),
        job(bot, "build", "A"),
        job(bot, "build", "B", ""),
    )
    assert (await bot.get(API))[1]["sha"] == COMMITS["A"]


@pytest.mark.logic
async def test_it_may_lie_far_back(bot):
    names, replaced = [f"{number:040x}" for number in range(1, 80)], "f" * 40
    await deliver(bot, *(push(bot, name, parent=parent, at=number) for number, (parent, name)
                      in enumerate(itertools.pairwise([None, *names])) if number != 2))  # fmt: skip
    await deliver(bot, push(bot, replaced, parent=names[1], at=1), push(bot, names[2], parent=replaced, at=2, forced=True),
               job(bot, "build", replaced), job(bot, "lint", replaced))  # fmt: skip
    for number, name in enumerate(names):
        outcome = "success" if number < 3 else "failure"
        await deliver(
            bot,
            job(bot, "build", name, outcome),
            job(bot, "lint", name, "success" if number != 2 else "failure"),
        )
    for _ in range(2):  # the second time with stored cells
        assert (await bot.get(API))[1]["sha"] == names[1]
        assert (await bot.get(f"{API}?jobs=build"))[1]["sha"] == names[2]
        await bot.wait(60)


@pytest.mark.logic
async def test_jobs_that_run_on_few_commits_are_selected_only_where_they_are_said_to_block(bot):
    names = "ABCDE"
    pushes = [push(bot, name, parent=before, at=9 * at) for at, (before, name) in enumerate(
        zip((None, *names), names, strict=False))]  # fmt: skip
    await deliver(
        bot, *pushes, *(job(bot, "build", name) for name in names),
        job(bot, "weekly", "A", workflow="periodic", run=99),
        job(bot, "docs", "C", "failure"), job(bot, "docs", "B"), job(bot, "docs", "A"),
    )  # fmt: skip
    status, body = await bot.get(API)
    assert (status, body["sha"], body["columns"]) == (200, COMMITS["B"], 2)  # docs ran on most of them
    assert (await bot.get(f"{API}?jobs=weekly|build"))[1]["sha"] == COMMITS["A"]
