"""Failed jobs that are run again: no verdict before each of them has one, or GitHub has judged the attempt."""

from __future__ import annotations

import pytest

from tests.harness import L2, L3, L4, UPSTREAM

pytestmark = pytest.mark.logic

OTHER_CI = f"L4:\n  tpu: {{repo: {L4}, oncalls: [dave], confirm: false}}\n"


def gate(bot, pull):
    return bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2]


async def two_failed(bot, github, pull):
    """A run of two jobs that failed and was run again; the first job of the second attempt has passed."""
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    for name in ("build", "test"):
        job = await github.start_job(run, name)
        await bot.report(bot.dispatch(L4), conclusion="failure", job=name, run_id=str(run.id))
        await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    await bot.settle(horizon=20)
    assert gate(bot, pull) == ("completed", "failure")
    red = next(one for one in github.check_runs(UPSTREAM, pull.head_sha) if one.name == "oot / tpu")
    await github.rerequest(red.id)
    await bot.settle(horizon=20)
    await again(bot, run, "build", status="in_progress")
    await bot.settle(horizon=20)
    await again(bot, run, "build")
    await bot.settle(horizon=20)
    return run


async def again(bot, run, job, conclusion="success", **more):
    await bot.report(bot.dispatch(L4), conclusion=conclusion, job=job, run_id=str(run.id), attempt=2, **more)


async def test_while_one_of_two_has_yet_to_report_there_is_no_verdict(bot, github, pull):
    run = await two_failed(bot, github, pull)
    assert gate(bot, pull) == ("in_progress", None)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"] == ("in_progress", None, "1 done, 1 running")
    await again(bot, run, "test")
    await github.finish_run(run, "success")
    await bot.settle(horizon=20)
    assert gate(bot, pull) == ("completed", "success")


@pytest.mark.parametrize("conclusion", ["success", "failure"])
async def test_githubs_conclusion_decides_for_a_job_that_never_reports(bot, github, pull, conclusion):
    run = await two_failed(bot, github, pull)
    await github.finish_run(run, conclusion)
    await bot.settle(horizon=20)
    assert gate(bot, pull) == ("completed", conclusion)


async def test_one_that_fails_again_fails_at_once(bot, github, pull):
    run = await two_failed(bot, github, pull)
    await again(bot, run, "test", conclusion="failure")
    await bot.settle(horizon=20)
    assert gate(bot, pull) == ("completed", "failure")


@pytest.mark.parametrize("reports", [True, False])
async def test_cancelled_jobs_that_are_run_again_are_waited_for_too(bot, github, pull, reports):
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    for name in ("build", "test"):
        await github.start_job(run, name)
        await bot.report(bot.dispatch(L4), status="in_progress", job=name, run_id=str(run.id))
    for command in ("cancel", "rerun"):
        bot.clock.advance(60)
        await github.comment(pull, f"/oot {command} tpu", pull.author)
        await bot.settle(horizon=20)
    await again(bot, run, "build", status="in_progress")
    await again(bot, run, "build")
    await bot.settle(horizon=20)
    assert gate(bot, pull) == ("in_progress", None)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"] == ("in_progress", None, "1 done, 1 running")
    if reports:
        await again(bot, run, "test")
    await github.finish_run(run, "success")
    await bot.settle(horizon=20)
    assert gate(bot, pull) == ("completed", "success")


@pytest.mark.parametrize("reported", [True, False])
@pytest.mark.parametrize("gone", ["closed", "moved"])
async def test_what_is_closed_or_has_a_newer_commit_is_not_dispatched_again(
    bot, github, pull, gone, reported
):
    if reported:  # on a run that GitHub has deleted meanwhile
        await bot.report(bot.dispatch(L4), conclusion="failure", run_id="4711")
        await bot.settle(horizon=20)
    (ours,) = [one for one in github.check_runs(UPSTREAM, pull.head_sha) if one.name == "oot / tpu"]
    await (github.close(pull) if gone == "closed" else github.push_commit(pull))
    await bot.settle(horizon=20)
    sent = len(github.dispatches)
    await github.rerequest(ours.id)
    await bot.settle(horizon=20)
    assert len(github.dispatches) == sent
    assert [row["state"] for row in await bot.rows("oot_rerun")] == (["impossible"] if reported else [])


async def test_where_github_cannot_be_asked_a_quiet_minute_leaves_it_failed(bot, github):
    (bot.context.settings.data_dir / "allowlist.yml").write_text(OTHER_CI)
    bot.clock.advance(60)
    await bot.settle()
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    for job, attempt, conclusion in (
        ("build", 1, "failure"),
        ("test", 1, "failure"),
        ("build", 2, "success"),
    ):
        await bot.report(bot.dispatch(L4), conclusion=conclusion, job=job, run_id="B1", attempt=attempt)
    await bot.settle(horizon=20)
    assert gate(bot, pull) == ("in_progress", None)
    await bot.settle(horizon=120)
    assert gate(bot, pull) == ("completed", "failure")


async def test_what_could_not_be_run_again_while_closed_can_be_once_it_is_open(bot, github, pull):
    await bot.report(
        bot.dispatch(L4), conclusion="failure", run_id="4711"
    )  # which GitHub has deleted meanwhile
    await bot.settle(horizon=20)
    (ours,) = [one for one in github.check_runs(UPSTREAM, pull.head_sha) if one.name == "oot / tpu"]
    for act in (github.close, github.reopen):
        bot.clock.advance(60)
        await act(pull)
        if act == github.close:
            await github.rerequest(ours.id)
        await bot.settle(horizon=20)
    sent = len(github.dispatches)
    await github.comment(pull, "/oot rerun", pull.author)
    await bot.settle(horizon=20)
    assert len(github.dispatches) == sent + 1


async def test_several_runs_that_cannot_be_run_again_make_one_dispatch(bot, github, pull):
    for run in ("4711", "4712", "4713"):
        await bot.report(bot.dispatch(L4), conclusion="failure", run_id=run)
    await bot.settle(horizon=20)
    sent = len(github.dispatches)
    await github.comment(pull, "/oot rerun", pull.author)
    await bot.settle(horizon=20)
    assert len(github.dispatches) == sent + 1


async def test_what_was_cancelled_before_it_was_sent_can_be_asked_for_again(bot, github, pull):
    await bot.wait(7 * 3600)  # nobody has reported
    github.faults.add(method="POST", path="/dispatches$", status=429, headers={"Retry-After": "600"})
    sent = len(github.dispatches)
    for command in ("rerun tpu", "cancel tpu", "rerun tpu"):
        bot.clock.advance(60)
        await github.comment(pull, f"/oot {command}", pull.author)
        await bot.settle(horizon=20)
    await bot.settle(horizon=600)
    assert len(github.dispatches) == sent + 1


# What becomes of jobs that never said how they ended, when GitHub says that their run is over?


@pytest.fixture
async def started(bot, github):
    """A run of an L3 backend whose label is on: it has said that two jobs began, one of them passed."""
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle()
    run = await github.start_run(L3, event="repository_dispatch", name="CI")
    for job in ("build", "test"):
        await bot.report(bot.dispatch(L3), status="in_progress", job=job, run_id=str(run.id))
    await bot.report(bot.dispatch(L3), job="build", run_id=str(run.id))
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][0] == "in_progress"
    return pull, run


@pytest.mark.parametrize("conclusion", ["failure", "cancelled", "timed_out", "startup_failure"])
async def test_a_run_that_ended_badly_ends_its_check_at_once(bot, github, started, conclusion):
    pull, run = started
    await github.finish_run(run, conclusion)
    await bot.settle(horizon=60)
    shown = "cancelled" if conclusion == "cancelled" else "neutral"  # what failed at L3 blocks nobody
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", shown)
    _, page = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    ends = {job["job_name"]: (job["status"], job["conclusion"]) for job in page["jobs"]}
    assert ends == {"build": ("completed", "success"), "test": ("completed", conclusion)}


async def test_a_report_that_comes_after_all_counts(bot, github, started):
    pull, run = started
    await github.finish_run(run, "cancelled")
    await bot.settle(horizon=60)
    assert (await bot.report(bot.dispatch(L3), job="test", run_id=str(run.id)))[0] == 200
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", "success")


async def test_a_run_that_ended_well_says_nothing_of_a_job_that_did_not_report(bot, github, started):
    pull, run = started
    await github.finish_run(run, "success")
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][0] == "in_progress"


async def test_an_older_attempt_that_ended_says_nothing_of_the_newer(bot, github, started):
    pull, run = started
    await github.finish_run(run, "cancelled")
    await bot.settle(horizon=60)
    cancelled = next(one for one in reversed(github.deliveries) if one.event == "workflow_run")
    await bot.report(bot.dispatch(L3), status="in_progress", job="test", run_id=str(run.id), attempt=2)
    await github.redeliver(cancelled)
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][0] == "in_progress"


async def test_a_stranger_to_the_dispatch_ends_nothing(bot, github, started):
    pull, _ = started
    other = await github.start_run(L2, event="push", name="CI")
    await github.finish_run(other, "cancelled")
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][0] == "in_progress"
