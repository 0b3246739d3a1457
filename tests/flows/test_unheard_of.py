"""What GitHub never told us of, and a bot that fetches its deliveries."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace

import pytest

from bot.demo.github import payloads
from tests.command import ootbot
from tests.flows.scenarios import (
    NOWHERE,
    ROUND,
    a_job,
    asked_for,
    base_left_before_its_event_arrives,
    log_row,
    metric,
    silently,
    stored,
    unseen,
)
from tests.harness import L3, L4, UPSTREAM, make_settings, running
from tests.serving import SQLITE

# Pull requests whose deliveries never came are found by reading them at GitHub.


def actions(github, repo):
    """What a backend was told of, in order."""
    sent = [one.client_payload["payload"] for one in github.dispatches if one.repo.full_name == repo]
    return [one["action"] for one in sent]


def pull_event(github, pull, action):
    """What GitHub would tell of a pull request now."""
    event = payloads.pull_request(github.state, pull, action, "alice", after=pull.head_sha)
    return payloads.envelope(github.state, event, github.state.installed_on(pull.repo)[0])


@pytest.mark.logic
async def test_pull_requests_that_no_delivery_told_of_are_relayed_moved_and_closed(bot, github):
    closed, moved = [await github.open_pull(UPSTREAM) for _ in range(2)]
    await bot.settle()
    opened = await unseen(github)
    await silently(github, github.close(closed))
    head = await silently(github, github.push_commit(moved))
    for _ in range(3):
        await bot.wait(ROUND)
    told = [sent.client_payload["payload"] for sent in github.dispatches if sent.repo.full_name == L4]
    assert sorted((one["number"], one["action"]) for one in told[2:]) == [
        (closed.number, "closed"),
        (moved.number, "synchronize"),
        (opened.number, "opened"),
    ]
    states = {row["number"]: (row["state"], row["head_sha"]) for row in await bot.rows("pull_request")}
    assert states[closed.number][0] == "closed"
    assert states[moved.number] == ("open", head)
    assert bot.checks(UPSTREAM, head)["oot / gate"][0] == "in_progress"
    calls = len([call for call in github.calls if "/pulls/" in call.path])
    await bot.wait(ROUND)
    assert len([call for call in github.calls if "/pulls/" in call.path]) == calls


@pytest.mark.logic
async def test_a_delivery_of_which_only_another_apps_copy_came_is_asked_for(bot, github, outage):
    row = log_row(github, "workflow_job", a_job(1))
    elsewhere = {"X-GitHub-Hook-Installation-Target-ID": "999999"}
    assert (await bot.send("workflow_job", a_job(1), guid=row.guid, headers=elsewhere))[0] == 202
    bot.clock.advance(120)
    outage()
    for _ in range(2):
        await bot.wait(ROUND)
    assert asked_for(github) == {row.guid: 1}
    assert [record["id"] for record in await bot.rows("workflow_job")] == [1]


@pytest.mark.logic
async def test_another_base_branch_that_no_delivery_told_of_asks_for_another_verdict(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await github.push(UPSTREAM, "release", message="a branch")
    await bot.settle()
    bot.clock.advance(60)
    await silently(github, github.retarget(pull, "release"))
    for _ in range(3):
        await bot.wait(ROUND)
    bases = [
        sent.client_payload["payload"]["pull_request"]["base"]["ref"]
        for sent in github.dispatches
        if sent.repo.full_name == L4
    ]
    assert bases == ["main", "release"]


@pytest.mark.logic
async def test_a_reopening_that_no_delivery_told_of_has_run_what_closing_cancelled(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    first, run = bot.dispatch(L4), await github.start_run(L4, event="repository_dispatch", name="CI")
    bot.clock.advance(60)
    await github.close(pull)
    await bot.settle()
    await bot.report(first, conclusion="cancelled", run_id=str(run.id))
    await github.finish_run(run, "cancelled")
    await bot.report(bot.dispatch(L3, 0))
    await bot.settle()
    bot.clock.advance(60)
    await silently(github, github.reopen(pull))
    reopened = pull_event(github, pull, "reopened")
    for _ in range(3):
        await bot.wait(ROUND)
    await bot.send("pull_request", reopened)  # it came after all
    await bot.settle()
    assert actions(github, L4) == ["opened", "closed", "reopened"]
    assert actions(github, L3) == ["opened", "closed"], "what has ended well stands"
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][2] == "waiting for tpu"
    assert [row["state"] for row in await bot.rows("pull_request")] == ["open"]


@pytest.mark.logic
async def test_the_end_of_a_draft_that_no_delivery_told_of_is_told_once(bot, github):
    pull = await github.open_pull(UPSTREAM, draft=True)
    await bot.settle()
    bot.clock.advance(60)
    await silently(github, github.ready_for_review(pull))
    for _ in range(3):
        await bot.wait(ROUND)
    await bot.send("pull_request", pull_event(github, pull, "ready_for_review"))
    await bot.settle()
    assert actions(github, L4) == ["opened", "ready_for_review"]


@pytest.mark.logic
async def test_news_that_may_still_come_by_delivery_is_waited_for(bot, github, outage):
    pull = await github.open_pull(UPSTREAM)
    await bot.wait(ROUND)
    await bot.wait(ROUND)
    assert github.dispatches == []
    outage()
    for _ in range(4):
        await bot.wait(ROUND)
    assert sorted(Counter(sent.repo.full_name for sent in github.dispatches).values()) == [1, 1, 1, 1]
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"


@pytest.mark.logic
async def test_another_base_branch_told_too_early_and_then_not_at_all_is_told_in_the_end(bot, github):
    pull = await base_left_before_its_event_arrives(bot, github)
    bot.clock.advance(60)
    await silently(github, github.retarget(pull, "release"))
    for _ in range(3):
        await bot.wait(ROUND)
    assert actions(github, L4) == ["opened", "edited"]
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][2] == "waiting for tpu"


@pytest.mark.logic
async def test_a_delivery_that_comes_hours_late_runs_no_backend_again(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    bot.clock.advance(60)
    await silently(github, github.push_commit(pull))
    delayed = pull_event(github, pull, "synchronize")
    for _ in range(3):
        await bot.wait(ROUND)
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle()
    await bot.send("pull_request", delayed)
    await bot.settle()
    told = Counter(sent.repo.full_name for sent in github.dispatches)
    assert set(told.values()) == {2}, "the opening, and the commit"
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1] == "failure"


@pytest.mark.logic
async def test_pull_requests_older_than_the_bot_are_recorded_and_not_relayed(settings, github, issuer, clock):
    old = await github.open_pull(UPSTREAM)
    clock.advance(3600)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        for _ in range(3):
            await bot.wait(ROUND)
        assert [row["number"] for row in await bot.rows("pull_request")] == [old.number]
        assert github.dispatches == []
        head = await silently(github, github.push_commit(old))
        for _ in range(3):
            await bot.wait(ROUND)
        sent = {one.client_payload["payload"]["pull_request"]["head"]["sha"] for one in github.dispatches}
        assert sent == {head}


@pytest.mark.logic
async def test_a_label_that_no_delivery_told_of_is_found_and_its_check_appears(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert "oot / npu" not in bot.checks(UPSTREAM, pull.head_sha)
    await silently(github, github.label(pull, "ciflow/oot/npu"))
    for _ in range(3):
        await bot.wait(ROUND)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("queued", None)


# Runs, jobs and check runs that ended unheard of are found; what GitHub refuses keeps nothing else back.


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


# RECEIVE=pull: a bot that GitHub cannot reach takes its deliveries out of the log.


def never_given(github, rows):
    """Let GitHub have no answer about these rows of its log; returns the fault."""
    ids = "|".join(str(row.id) for row in rows)
    path = rf"/app/hook/deliveries/({ids})(/attempts)?$"
    return github.faults.add(method="GET|POST", path=path, status=502, times=100_000)


@pytest.fixture
async def pulling(settings, github, issuer, clock):
    settings = make_settings(
        github=github, issuer=issuer, app=github.app, folder=settings.data_dir,
        database_url=settings.database_url, receive="pull",
    )  # fmt: skip
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        bot.app.webhook_url = NOWHERE
        yield bot


@pytest.mark.logic
async def test_a_bot_nobody_can_reach_takes_deliveries_out_of_the_log(pulling, github):
    pull = await github.open_pull(UPSTREAM)
    await pulling.wait(6)
    assert pulling.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"
    run = await github.start_run(L4, name="CI")
    await github.finish_run(run, "success")
    await pulling.wait(6)
    assert [row["status"] for row in await pulling.rows("workflow_run")] == ["completed"]
    (delivery,) = [row for row in await pulling.rows("delivery") if row["event"] == "pull_request"]
    assert delivery["source"] == "pull"
    assert json.loads(delivery["headers"])["X-GitHub-Event"] == "pull_request"
    assert "signature" not in delivery["headers"].casefold()
    assert set((await stored(pulling)).values()) == {"pull"}


@pytest.mark.logic
async def test_a_pulling_bot_asks_for_nothing_and_catches_up_after_a_stop(pulling, github):
    rows = [log_row(github, "workflow_job", a_job(number)) for number in range(250)]
    log_row(github, "star", {"action": "created"})
    pulling.clock.advance(3600)
    await pulling.wait(ROUND)
    assert {row.guid for row in rows} <= (await stored(pulling)).keys()
    assert len(await pulling.rows("workflow_job")) == 250
    taken = [call for call in github.calls if call.path.startswith("/app/hook/deliveries/")]
    assert len(taken) == 250
    assert asked_for(github) == {}


@pytest.mark.logic
@pytest.mark.parametrize("stuck", [pytest.param(1, marks=pytest.mark.nightly), 5])
async def test_deliveries_github_cannot_give_keep_no_others_from_coming(bot, github, outage, stuck):
    before = await metric(bot, "ootbot_deliveries_lost_total")
    bad = [log_row(github, "workflow_job", a_job(number)) for number in range(stuck)]
    bot.clock.advance(60)
    good = [log_row(github, "workflow_job", a_job(number)) for number in range(10, 20)]
    outage()
    fault = never_given(github, bad)
    for _ in range(2):
        await bot.wait(ROUND)
    assert (await stored(bot)).keys() == {row.guid for row in good}
    pull = await unseen(github)
    for _ in range(12):
        await bot.wait(ROUND)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress", "nobody waits for the bad"
    age = await metric(bot, f'ootbot_sweep_age_seconds{{app="{bot.app.app_id}",sweep="redeliver"}}')
    assert age < 2 * ROUND, "the log was read"
    github.faults.waiting.remove(fault)
    for _ in range(2):
        await bot.wait(ROUND)
    assert {row.guid for row in bad} <= (await stored(bot)).keys()
    assert await metric(bot, "ootbot_deliveries_lost_total") == before


@pytest.mark.logic
@pytest.mark.parametrize("stuck", [pytest.param(1, marks=pytest.mark.nightly), 5])
async def test_deliveries_github_cannot_give_keep_no_others_from_being_taken(pulling, github, stuck):
    await pulling.wait(6)
    good = [log_row(github, "workflow_job", a_job(number)) for number in range(10, 20)]
    pulling.clock.advance(2)
    bad = [log_row(github, "workflow_job", a_job(number)) for number in range(stuck)]
    fault = never_given(github, bad)
    for _ in range(3):
        await pulling.wait(6)
    assert (await stored(pulling)).keys() == {row.guid for row in good}
    await pulling.wait(60)
    later = log_row(github, "workflow_job", a_job(30))
    await pulling.wait(6)
    assert later.guid in await stored(pulling)
    tries = len([call for call in github.calls if call.path.endswith(f"/deliveries/{bad[0].id}")])
    assert tries == 1, "one that cannot be had is not tried at every look"
    github.faults.waiting.remove(fault)
    await pulling.wait(ROUND)
    assert {row.guid for row in bad} <= (await stored(pulling)).keys()
