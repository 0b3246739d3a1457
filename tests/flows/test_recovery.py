"""Deliveries lost in an outage are found in GitHub's delivery log and asked for again."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.flows.outages import (
    ASKED,
    NOWHERE,
    ROUND,
    a_job,
    asked_for,
    log_row,
    metric,
    stored,
    unseen,
)
from tests.harness import L4, SECRET, UPSTREAM, make_settings, running


@pytest.mark.logic
async def test_after_an_outage_everything_is_recovered_and_only_what_was_missed_is_asked_for(
    bot, github, outage
):
    arrived = []
    for number in range(1, 1161):
        row = log_row(github, "workflow_job", a_job(number), status=202 if number <= 900 else 502)
        if number > 1030:  # failed first, came in when it was sent again
            log_row(github, "workflow_job", a_job(number), guid=row.guid, status=202)
        if number <= 900 or number > 1030:
            arrived.append((a_job(number), row.guid))
        bot.clock.advance(20)
    for start in range(0, len(arrived), 50):
        sent = (bot.send("workflow_job", job, guid=guid) for job, guid in arrived[start : start + 50])
        assert {status for status, _ in await asyncio.gather(*sent)} == {202}
    missed_pulls = [await github.open_pull(UPSTREAM) for _ in range(3)]
    lost = await unseen(github)
    known = await stored(bot)
    missed = {row.guid for row in github.deliveries} - known.keys()
    for number in range(270 - len(missed)):
        row = log_row(github, "workflow_job", a_job(5000 + number))
        missed.add(row.guid)
        if number < 20:  # sent again by hand, in vain
            log_row(github, "workflow_job", a_job(5000 + number), guid=row.guid)
        bot.clock.advance(20)
    for _ in range(2000 - len(github.deliveries)):
        log_row(github, "star", {"action": "created"})
    assert (len(github.deliveries), len(missed)) == (2000, 270)

    outage()
    for _ in range(4):
        await bot.wait(ROUND)
    assert asked_for(github) == dict.fromkeys(missed, 1)
    assert missed <= (await stored(bot)).keys()
    for pull in (*missed_pulls, lost):
        dispatched = [
            sent.repo.full_name
            for sent in github.dispatches
            if sent.client_payload["payload"]["pull_request"]["number"] == pull.number
        ]
        assert sorted(dispatched) == sorted(set(dispatched))
        assert L4 in dispatched
        assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"
    assert [source for source in (await stored(bot)).values() if source != "webhook"] == ["api"]
    jobs = {row.payload["workflow_job"]["id"] for row in github.deliveries if row.event == "workflow_job"}
    assert {row["id"] for row in await bot.rows("workflow_job")} == jobs


@pytest.mark.logic
async def test_what_strangers_repositories_sent_comes_after_ours_a_little_at_a_time(bot, github, outage):
    """Anybody may install a public App, and have thousands of deliveries sent."""
    job = a_job(1) | {"repository": {"id": 99, "full_name": "some/body"}}
    assert (await bot.send("workflow_job", job))[0] == 202
    await bot.settle()
    strange = {log_row(github, "workflow_job", job, repository_id=99).guid for _ in range(500)}
    bot.clock.advance(60)
    pull = await github.open_pull(UPSTREAM)
    (first,) = (row.guid for row in github.deliveries if row.event == "pull_request")
    lost = await unseen(github)
    outage()
    await bot.wait(ROUND)
    asked = list(asked_for(github))
    assert asked[0] == first
    assert len(strange.intersection(asked)) <= 60
    for _ in range(3):
        await bot.wait(ROUND)
    assert not strange <= (await stored(bot)).keys()
    for one in (pull, lost):  # of the second no delivery tells: reconcile waits for none of strangers'
        assert bot.checks(UPSTREAM, one.head_sha)["oot / gate"][0] == "in_progress"
    for _ in range(6):
        await bot.wait(ROUND)
    assert strange <= (await stored(bot)).keys()


@pytest.mark.logic
async def test_while_nobody_can_reach_the_bot_it_fetches_what_it_asked_for_in_vain(bot, github, outage):
    """An hour and more behind a broken proxy, with the bot up: every sweep asks, and nothing comes in."""
    before = await metric(bot, "ootbot_deliveries_lost_total")
    pulls = []
    for _ in range(6):
        pulls.append(await github.open_pull(UPSTREAM))
        await bot.wait(ROUND)
    for _ in range(3):
        await bot.wait(ROUND)
    assert max(asked_for(github).values()) == 2
    assert {row.guid for row in github.deliveries if row.event == "pull_request"} <= (
        await stored(bot)
    ).keys()
    for pull in pulls:
        assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"
    outage()
    await bot.wait(ROUND)
    assert await metric(bot, "ootbot_deliveries_lost_total") == before
    assert len(github.dispatches) == 4 * len(pulls)


@pytest.mark.logic
async def test_what_left_githubs_log_is_lost_and_counted(bot, github, outage):
    before = await metric(bot, "ootbot_deliveries_lost_total")
    row = log_row(github, "push", {"ref": "refs/heads/main"})
    await bot.wait(ROUND)
    github.deliveries.remove(row)
    for _ in range(4):
        await bot.wait(ROUND)
    assert await metric(bot, "ootbot_deliveries_lost_total") == before + 1


@pytest.mark.logic
async def test_a_log_we_are_not_let_into_loses_nothing(bot, github, outage):
    before = await metric(bot, "ootbot_deliveries_lost_total")
    row = log_row(github, "workflow_job", a_job(1))
    github.faults.add(
        path=r"/app/hook/deliveries/\d", method="GET|POST", status=403, body={"message": "No"}, times=40
    )
    for _ in range(6):
        await bot.wait(ROUND)
    github.faults.clear()
    for _ in range(4):
        await bot.wait(ROUND)
    assert row.guid in await stored(bot)
    assert await metric(bot, "ootbot_deliveries_lost_total") == before


@pytest.mark.logic
async def test_a_sweep_that_github_slows_down_goes_on_where_it_was(bot, github):
    rows = [log_row(github, "workflow_job", a_job(number)) for number in range(5)]
    github.faults.add(method="POST", path=ASKED, status=502)
    github.faults.add(method="POST", path=ASKED, status=429, headers={"Retry-After": "90"})
    await bot.wait(ROUND)
    await bot.wait(60)
    await bot.wait(120)
    assert {row.guid for row in rows[1:]} <= (await stored(bot)).keys()
    await bot.wait(ROUND)
    assert {row.guid for row in rows} <= (await stored(bot)).keys()
    answered = Counter(row.guid for row in github.deliveries if row.redelivery)
    assert answered == dict.fromkeys((row.guid for row in rows), 1)


@pytest.fixture
def two_apps(github, issuer, tmp_path, database_url, app_key):
    """The backends' own App, a repository only that is installed on, and the settings of a bot that serves both."""
    second = github.register_app(
        webhook_url=NOWHERE, webhook_secret=SECRET, slug="ootbot-relay", private_key_pem=app_key
    )
    settings = make_settings(
        github=github, issuer=issuer, app=github.app, folder=tmp_path, database_url=database_url,
        relay_app_id=second.app_id, relay_private_key=second.private_key_pem, relay_webhook_secret=(SECRET,),
    )  # fmt: skip
    return second, github.add_repo("org/other-backend", install=[second]), settings


async def test_both_apps_logs_are_swept_where_the_backends_have_their_own(github, issuer, clock, two_apps):
    second, backend, settings = two_apps
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        run = await github.start_run(backend)
        second.webhook_url = bot.app.webhook_url
        await bot.wait(ROUND)
        assert [row["id"] for row in await bot.rows("workflow_run")] == [run.id]


@pytest.mark.logic
async def test_one_app_that_is_refused_does_not_keep_the_others_log_from_being_swept(
    github, issuer, clock, two_apps
):
    second, backend, settings = two_apps
    github.faults.add(
        method="GET", path="/app/hook/deliveries$", status=403, body={"message": "suspended"}, times=1
    )
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        run = await github.start_run(backend)
        second.webhook_url = bot.app.webhook_url
        await bot.wait(61)  # the first sweep: the first App's is refused
        await bot.wait(ROUND)
        assert [row["id"] for row in await bot.rows("workflow_run")] == [run.id]
        github.faults.add(
            method="GET", path="/app/hook/deliveries$", status=403, body={"message": "no"}, times=10_000
        )
        await bot.wait(25 * 3600)
        notes = (await bot.get("/readyz"))[1]["notes"]
        assert [str(app.app_id) in " ".join(notes) for app in (github.app, second)] == [True, True]
