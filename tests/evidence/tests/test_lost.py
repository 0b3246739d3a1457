"""Suites and jobs that run fewer tests than in the trusted run before, or skip more of them."""

from __future__ import annotations

import pytest

from tests.evidence.tests.reported import JOB, case, leave, ran, xml
from tests.harness import L3, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
HORIZON = 1500
SHARDS = [JOB.replace("1, 2", f"{shard}, 2") for shard in (1, 2)]


def cases(count, *, suite="TestOps", skipped=0):
    return [
        case(f"test_{number:02}", "skipped" if number < skipped else "passed", suite=suite)
        for number in range(count)
    ]


async def push(bot, github, first, *, second=None, conclusion="success", extra=None, **run):
    """A run of two shards; the first leaves these cases, the second always the same."""
    bot.clock.advance(3600)
    if not run:
        await github.push(UPSTREAM)
    made = await github.start_run(UPSTREAM, event=run.pop("event", "push"), **run)
    for name, some in zip(SHARDS, (first, second or cases(10, suite="TestOther")), strict=True):
        job = await github.start_job(made, name)
        files = {"a.xml": xml(*some)} | (extra or {})
        github.add_artifact(made, f"test-reports-{name.split('(')[1].split(',')[1].strip()}_{job.id}", files)
        await github.finish_job(job, conclusion)
    await github.finish_run(made, conclusion)
    await bot.settle(horizon=HORIZON)
    return made


async def lost(bot, repo=UPSTREAM):
    status, answer = await bot.get(f"/api/ci/lost-tests/{repo}")
    assert status == 200
    return [(one["kind"], one["suite"], one["tests_before"], one["tests"]) for one in answer["lost"]]


async def test_a_suite_that_runs_a_fifth_fewer_tests_is_told_with_those_that_are_gone(bot, github):
    await push(bot, github, cases(40))
    assert await lost(bot) == []
    await push(bot, github, cases(32))
    assert sorted(await lost(bot)) == [("gone", "", 50, 42), ("lost", "TestOps", 40, 32)]
    _, answer = await bot.get(f"/api/ci/lost-tests/{UPSTREAM}")
    gone = next(one for one in answer["lost"] if one["kind"] == "gone")
    assert (gone["gone"], len(gone["examples"])) == (8, 8)
    for page in (f"/{UPSTREAM}/tests/lost", f"/{UPSTREAM}/commit/{gone['sha']}"):
        _, shown = await bot.get(page)
        assert "32 of 40 tests are left" in shown
        assert "8 tests are gone" in shown
        assert "test_32" in shown
    _, changes = await bot.get(f"/{UPSTREAM}/commit/{gone['sha']}/tests?base={gone['base']}")
    assert "test_39" in changes
    await push(bot, github, cases(32))  # it stays so: that is no news
    assert len(await lost(bot)) == 2


async def test_files_of_other_kinds_do_not_keep_lost_tests_from_being_told(bot, github):
    coverage = b"<?xml version='1.0'?><!DOCTYPE coverage SYSTEM 'coverage-04.dtd'><coverage/>"
    extra = {"coverage.xml": coverage, "pom.xml": b"<project/>"}
    await push(bot, github, cases(40), extra=extra)
    run = await push(bot, github, cases(32), extra=extra)
    assert ("lost", "TestOps", 40, 32) in await lost(bot)
    _, page = await bot.get(f"/{UPSTREAM}/run/{run.id}/tests")
    assert "unreadable" not in page
    assert "no report of tests: it begins with &lt;coverage&gt;" in page


async def test_a_share_of_skipped_tests_that_jumps_is_told(bot, github):
    await push(bot, github, cases(40, skipped=4))
    await push(bot, github, cases(40, skipped=11))
    assert await lost(bot) == []
    await push(bot, github, cases(40, skipped=19))
    assert await lost(bot) == [("skipped", "TestOps", 40, 40)]


async def test_fewer_than_a_fifth_and_small_suites_are_not_told(bot, github):
    await push(bot, github, [*cases(40), *cases(4, suite="TestFew")])
    await push(bot, github, [*cases(33), *cases(1, suite="TestFew")])
    assert [one for one in await lost(bot) if one[0] != "gone"] == []


@pytest.mark.parametrize(
    "why",
    [
        pytest.param("a shard", marks=pytest.mark.nightly),
        pytest.param("failed", marks=pytest.mark.nightly),
        "unreadable",
        "pull request",
    ],
)
async def test_runs_that_are_not_complete_or_not_trusted_say_nothing(bot, github, why):
    fork = github.add_repo("someone/pytorch", install=[])
    await push(bot, github, cases(40))
    if why == "a shard":
        bot.clock.advance(3600)
        await github.push(UPSTREAM)
        await ran(github, {"a.xml": xml(*cases(5))}, name=SHARDS[0])
        await bot.settle(horizon=HORIZON)
    elif why == "failed":
        await push(bot, github, cases(5), conclusion="failure")
    elif why == "unreadable":
        await push(bot, github, cases(5), extra={"b.xml": b"<testsuite><testc"})
    else:
        await push(bot, github, cases(5), event="pull_request", head_repo=fork, head_branch="main")
    assert await lost(bot) == []


async def test_a_backend_of_a_pull_request_is_held_against_its_own_trusted_runs(bot, github):
    for count, event in ((20, "push"), (10, "repository_dispatch")):
        bot.clock.advance(3600)
        pull = await github.open_pull(UPSTREAM) if event == "repository_dispatch" else None
        await bot.settle()
        run = await github.start_run(L3, event=event)
        job = await github.start_job(run, JOB.replace("1, 2, ", ""))
        if pull:
            await bot.report(bot.dispatch(L3), run_id=str(run.id))
        await leave(github, run, job, {"a.xml": xml(*cases(count))})
        await bot.settle(horizon=HORIZON)
    assert ("lost", "TestOps", 20, 10) in await lost(bot, L3)
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "10 of 20 tests are left" in page
