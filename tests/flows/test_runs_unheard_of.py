"""Runs, jobs and check runs that ended unheard of are found; what GitHub refuses keeps nothing else back."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.command import ootbot
from tests.flows.outages import (
    ROUND,
    a_job,
    asked_for,
    log_row,
    metric,
    silently,
    stored,
    unseen,
)
from tests.harness import L3, L4, UPSTREAM, running
from tests.serving import SQLITE


@pytest.mark.logic
async def test_runs_jobs_and_checks_that_ended_unheard_are_found_to_have_ended(bot, github):
    pull = await github.open_pull(UPSTREAM)
    run = await github.start_run(L4, name="CI")
    job = await github.start_job(run, "build")
    await bot.settle()
    await silently(github, github.finish_job(job, "failure"))
    await silently(github, github.finish_run(run, "failure"))
    ours = next(made for made in github.check_runs(UPSTREAM, pull.head_sha) if made.name == "oot / tpu")
    await silently(github, bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id)))
    github.faults.add(method="HOOK", path="check_run", drop=True, times=100)
    for _ in range(3):
        await bot.wait(ROUND)
    assert [row["conclusion"] for row in await bot.rows("workflow_run")] == ["failure"]
    assert [row["conclusion"] for row in await bot.rows("workflow_job")] == ["failure"]
    records = {row["id"]: row["conclusion"] for row in await bot.rows("check_run")}
    assert records[ours.id] == "failure"


@pytest.mark.logic
async def test_a_run_that_no_delivery_told_of_is_found(bot, github):
    run = await silently(github, github.start_run(UPSTREAM, event="push", name="CI"))
    bot.clock.advance(16 * 60)
    await bot.wait(ROUND)
    assert [(row["id"], row["status"]) for row in await bot.rows("workflow_run")] == [(run.id, "in_progress")]
    await silently(github, github.finish_run(run, "success"))
    for _ in range(3):
        await bot.wait(ROUND)
    assert [(row["id"], row["conclusion"]) for row in await bot.rows("workflow_run")] == [(run.id, "success")]


@pytest.mark.logic
async def test_a_run_that_was_deleted_is_not_asked_about_for_ever(bot, github):
    run = await github.start_run(L4, name="CI")
    await bot.settle()
    del github.state.repo(L4).runs[run.id]
    for _ in range(6):
        await bot.wait(ROUND)
    asked = [call for call in github.calls if f"/actions/runs/{run.id}/attempts" in call.path]
    assert len(asked) == 2, "once more only while the token was fresh"
    assert [row["deleted_at"] is None for row in await bot.rows("workflow_run")] == [False]


@pytest.mark.nightly
@pytest.mark.logic
async def test_upstreams_list_that_is_refused_for_a_day_is_told(bot, github):
    github.faults.add(method="GET", path=r"/pulls$", status=403, body={"message": "No"}, times=10_000)
    for _ in range(26):
        await bot.wait(3600)
    notes = (await bot.get("/readyz"))[1]["notes"]
    assert "open and running" in " ".join(notes)
    assert "tasks: 1 given up; see /admin/tasks?state=dead" in notes, "once, however often it was tried"
    github.faults.clear()
    await bot.wait(ROUND)
    assert (await bot.get("/readyz"))[1]["notes"] == []


@pytest.mark.logic
async def test_what_github_does_not_let_us_read_leaves_the_rest_to_be_reconciled(bot, github):
    run = await github.start_run(L4, name="CI")
    await bot.settle()
    await silently(github, github.finish_run(run, "success"))
    pull = await unseen(github)
    github.faults.add(method="GET", path=r"/actions/runs/", status=403, body={"message": "No"}, times=1)
    github.faults.add(method="GET", path=r"/pulls$", status=404, body={"message": "Not Found"}, times=1)
    for _ in range(4):
        await bot.wait(ROUND)
    assert [row["status"] for row in await bot.rows("workflow_run")] == ["completed"]
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"


@pytest.mark.logic
async def test_a_run_github_cannot_tell_of_keeps_nothing_else_from_being_reconciled(bot, github):
    stuck, ended = await github.start_run(L4, name="CI"), await github.start_run(L3, name="CI")
    await bot.settle()
    pull = await unseen(github)
    await silently(github, github.finish_run(ended, "success"))
    github.faults.add(method="GET", path=rf"/actions/runs/{stuck.id}/", status=502, times=10_000)
    for _ in range(3):
        await bot.wait(ROUND)
    states = {row["id"]: row["status"] for row in await bot.rows("workflow_run")}
    assert states == {stuck.id: "in_progress", ended.id: "completed"}
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"
    age = await metric(bot, f'ootbot_sweep_age_seconds{{app="{bot.app.app_id}",sweep="reconcile"}}')
    assert age < 2 * ROUND, "what one run's GitHub cannot tell is nobody's alert"


@pytest.mark.logic
async def test_a_pull_request_github_cannot_show_keeps_nothing_else_from_being_reconciled(bot, github):
    pull = await unseen(github)
    run = await silently(github, github.start_run(UPSTREAM, event="push", name="CI"))
    fault = github.faults.add(method="GET", path=rf"/pulls/{pull.number}$", status=502, times=10_000)
    for _ in range(3):
        await bot.wait(ROUND)
    assert [row["id"] for row in await bot.rows("workflow_run")] == [run.id]
    assert bot.checks(UPSTREAM, pull.head_sha) == {}
    github.faults.waiting.remove(fault)
    for _ in range(2):
        await bot.wait(ROUND)
    assert "oot / gate" in bot.checks(UPSTREAM, pull.head_sha)


@pytest.mark.logic
async def test_an_upstream_github_wants_no_calls_for_keeps_no_other_from_being_reconciled(
    settings, github, issuer, clock
):
    other = "mirror/pytorch"
    github.add_repo(other)
    two = replace(settings, upstream_repo=(other, UPSTREAM))
    async with running(two, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        pull = await unseen(github)
        github.faults.add(
            method="GET", path=rf"{other}/pulls$", status=403, headers={"Retry-After": "7200"}, times=10_000
        )
        for _ in range(3):
            await bot.wait(ROUND)
        assert "oot / gate" in bot.checks(UPSTREAM, pull.head_sha)
        bot.clock.advance(26 * 3600)
        await bot.wait(ROUND)
        assert "open and running" in " ".join((await bot.get("/readyz"))[1]["notes"])


@pytest.mark.logic
async def test_nobody_asks_github_about_what_runs_at_strangers(bot, github):
    stranger = "stranger/project"
    github.add_repo(stranger)
    run = await github.start_run(stranger, name="CI")
    await github.start_job(run, "build")
    await bot.settle()
    assert [row["repo"] for row in await bot.rows("workflow_job")] == [stranger]
    for _ in range(3):
        await bot.wait(ROUND)
    assert [call.path for call in github.calls if stranger in call.path] == []


@pytest.mark.logic
async def test_when_the_log_was_not_read_for_a_day_the_operator_is_told(bot, github):
    assert (await bot.get("/readyz"))[1]["notes"] == []
    github.faults.add(method="GET", path="/app/hook/deliveries", status=500, times=10_000)
    await bot.wait(ROUND)
    bot.clock.advance(26 * 3600)
    await bot.wait(ROUND)
    status, body = await bot.get("/readyz")
    assert status == 200
    (note,) = body["notes"]
    assert "GitHub's delivery log" in note
    app = bot.app.app_id
    assert await metric(bot, f'ootbot_sweep_age_seconds{{app="{app}",sweep="redeliver"}}') > 24 * 3600
    assert await metric(bot, f'ootbot_sweep_age_seconds{{app="{app}",sweep="reconcile"}}') < 3601
    github.faults.clear()
    await bot.wait(ROUND)
    assert (await bot.get("/readyz"))[1]["notes"] == []


@pytest.mark.logic
async def test_a_broken_log_does_not_keep_the_rest_from_being_reconciled(bot, github):
    github.faults.add(method="GET", path="/app/hook/deliveries", status=500, times=10_000)
    await bot.wait(ROUND)
    pull = await unseen(github)
    for _ in range(15):
        await bot.wait(ROUND)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"


@SQLITE
async def test_the_command_lists_what_is_missing_then_asks_for_it(bot, github, clock):
    clock.at = round(time.time() * 1000)  # the command lives in the present
    row = log_row(github, "workflow_job", a_job(1))
    old = log_row(github, "workflow_job", a_job(2))
    log_row(github, "star", {"action": "created"})
    github.deliveries[-2] = old = moved_back(old, hours=10)
    github.deliveries[-3] = row = moved_back(row, hours=5)
    github.deliveries.sort(key=lambda each: each.delivered_at)
    code, out, err = await ootbot(bot, "redeliver", "--dry-run")
    assert (code, out) == (0, f"{row.guid} workflow_job\n{old.guid} workflow_job\n"), err
    assert "2 deliveries are missing" in err
    code, out, err = await ootbot(bot, "redeliver", "--since", "7h", "--dry-run")
    assert out == f"{row.guid} workflow_job\n"
    assert asked_for(github) == {}
    code, _, err = await ootbot(bot, "redeliver", "--since", "7h")
    assert err.index("asking for 1, ") < err.index(
        "1 were missing"
    )  # it may take a while: that is said first
    assert (code, "1 were missing, 1 asked for" in err) == (0, True)
    await github.settled()
    code, out, _ = await ootbot(bot, "redeliver", "--dry-run")
    assert (code, out) == (0, f"{old.guid} workflow_job\n"), "what lies before it was not looked at"
    code, _, err = await ootbot(bot, "redeliver", "--since", "3d")
    assert (code, "1 were missing, 1 asked for" in err) == (0, True)
    await github.settled()
    assert {row.guid, old.guid} <= (await stored(bot)).keys()
    code, _, err = await ootbot(bot, "redeliver", "--since", "soon")
    assert (code, "is not a duration" in err) == (2, True)


def moved_back(row, *, hours):
    return replace(row, delivered_at=row.delivered_at - hours * 3_600_000)
