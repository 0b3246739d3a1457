"""RECEIVE=pull: a bot that GitHub cannot reach takes its deliveries out of the log."""

from __future__ import annotations

import json

import pytest

from tests.flows.outages import (
    NOWHERE,
    ROUND,
    a_job,
    asked_for,
    log_row,
    metric,
    stored,
    unseen,
)
from tests.harness import L4, UPSTREAM, make_settings, running


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
