"""How long rows are kept, and how much of the disk others get."""

from __future__ import annotations

import asyncio
import random

import pytest
import sqlalchemy as sa

from bot.ingest.inbox import Incoming
from bot.ingest.tables import delivery
from tests.harness import L2, L3, L4, UPSTREAM, replace, running
from tests.ingest.histories import HISTORIES, REPOSITORY

# How long rows are kept, and which are never deleted because something still needs them.


DAY = 86_400  # seconds


async def guids(bot):
    return {row["guid"]: row["state"] for row in await bot.rows("delivery")}


async def later(bot, *, days):
    """Let days pass without the bot, then let it do what is due."""
    bot.clock.advance(days * DAY)
    await bot.settle()


@pytest.mark.logic
async def test_raw_deliveries_go_after_their_retention(bot):
    for name, (event, body) in {
        "handled": HISTORIES["issues"][0],
        "ignored": ("star", {"action": "created"}),
        "parked": ("issues", {"issue": 1, "repository": REPOSITORY}),
    }.items():
        await bot.send(event, body, guid=name)
    await bot.send("push", {}, guid="foreign", headers={"X-GitHub-Hook-Installation-Target-ID": "9"})
    await bot.settle()
    assert await guids(bot) == {name: name for name in ("handled", "ignored", "parked", "foreign")}
    await later(bot, days=89)
    assert len(await guids(bot)) == 4
    await later(bot, days=2)
    assert await guids(bot) == {}
    assert len(await bot.rows("issue")) == 1


async def test_a_delivery_that_was_not_handled_yet_is_kept_however_old_it_is(bot):
    for guid in ("waiting", "handled"):
        await bot.send(*HISTORIES["issues"][0], guid=guid)
    await bot.context.intake.move_arrived()
    async with bot.store.transaction() as tx:  # as one whose handling failed, to be tried again
        change = {"due_at": bot.clock.now() + 100 * DAY * 1000}
        await tx.run(sa.update(delivery).where(delivery.c.guid == "waiting").values(change))
    await bot.settle()
    await later(bot, days=91)
    assert await guids(bot) == {"waiting": "stored"}
    await later(bot, days=10)
    assert [row["number"] for row in await bot.rows("issue")] == [
        HISTORIES["issues"][0][1]["issue"]["number"]
    ]


@pytest.fixture
async def patient(settings, github, issuer, clock):
    """A bot that keeps raw deliveries for a day and waits for backends for a month."""
    settings = replace(settings, raw_retention_days=1, start_timeout=30 * DAY, job_timeout=30 * DAY)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        yield bot


async def relayed(bot, github):
    """Open a pull request; returns it and the delivery that was relayed."""
    pull = await github.open_pull(UPSTREAM)
    await bot.send("star", {"action": "created"}, guid="other")
    await bot.settle()
    (guid,) = {row.guid for row in github.deliveries if row.event == "pull_request"}
    return pull, guid


@pytest.mark.logic
async def test_a_delivery_is_kept_while_a_dispatch_that_was_not_sent_needs_it(patient, github):
    github.faults.add(method="POST", path=rf"/repos/{L4}/dispatches$", status=502, times=1000)
    pull, needed = await relayed(patient, github)
    for _ in range(3):
        await later(patient, days=2)
        assert needed in await guids(patient)
        assert "other" not in await guids(patient)
    github.faults.clear()
    await patient.wait(1200)
    assert patient.dispatch(L4).client_payload["payload"]["pull_request"]["head"]["sha"] == pull.head_sha


@pytest.mark.logic
async def test_a_delivery_is_kept_while_a_backend_may_still_be_run_again_for_it(patient, github):
    pull, needed = await relayed(patient, github)
    for backend in (L2, L3):
        await patient.report(patient.dispatch(backend))
    await patient.report(patient.dispatch(L4), status="in_progress")
    await later(patient, days=2)
    assert needed in await guids(patient)
    await patient.report(patient.dispatch(L4), conclusion="failure")
    await github.close(pull)
    await later(patient, days=1)
    assert needed not in await guids(patient)


@pytest.mark.logic
async def test_the_delivery_of_an_open_head_is_kept_as_it_may_have_to_be_dispatched_afresh(bot, github):
    pull, needed = await relayed(bot, github)
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id="4711")
    await later(bot, days=91)
    assert "other" not in await guids(bot)
    told = len(github.dispatches)
    await github.comment(pull, "/oot rerun tpu", pull.author)  # of a run that GitHub has deleted meanwhile
    await bot.settle(horizon=20)
    assert [one.repo.full_name for one in github.dispatches[told:]] == [L4]
    await bot.report(bot.dispatch(L4), run_id="4712")
    await github.close(pull)
    for _ in range(2):
        await later(bot, days=91)
    assert needed not in await guids(bot)


@pytest.mark.logic
async def test_the_delivery_of_a_closing_goes_as_nobody_answers_to_that(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    bot.clock.advance(60)
    await github.close(pull)
    for _ in range(2):
        await later(bot, days=91)
    assert (
        not {row.guid for row in github.deliveries if row.event == "pull_request"} & (await guids(bot)).keys()
    )


@pytest.mark.logic
async def test_records_go_after_theirs_but_not_what_is_open_or_decides_who_may_see(bot, github):
    await github.open_pull(UPSTREAM)
    closed = await github.open_pull(UPSTREAM)
    await github.close(closed)
    for event in ("workflow_job", "check_run", "issues"):
        await bot.send(*HISTORIES[event][-1])
    await bot.send(*HISTORIES["issues"][0])
    await bot.settle()
    await later(bot, days=399)
    assert len(await bot.rows("pull_request")) == 2
    assert len(await bot.rows("workflow_job")) == 1
    await later(bot, days=2)
    assert [row["state"] for row in await bot.rows("pull_request")] == ["open"]
    assert await bot.rows("workflow_job") == []
    assert REPOSITORY["id"] in {row["id"] for row in await bot.rows("repository")}


@pytest.mark.logic
async def test_what_github_said_of_a_run_is_kept_as_the_results_that_rest_on_it_are(
    settings, github, issuer, clock
):
    settings = replace(settings, record_retention_days=30)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        pull, _ = await relayed(bot, github)
        run = await github.start_run(L4, event="repository_dispatch", name="CI")
        other = await github.start_run(L4, event="push", name="CI")  # which nobody reports on
        await bot.report(bot.dispatch(L4), run_id=str(run.id))
        for one in (run, other):
            await github.finish_run(one, "success")
        await bot.settle(horizon=20)
        green = bot.checks(UPSTREAM, pull.head_sha)
        assert green["oot / gate"][:2] == ("completed", "success")
        await later(bot, days=31)
        assert [row["id"] for row in await bot.rows("workflow_run")] == [run.id]
        assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"] == green["oot / gate"]


@pytest.mark.logic
async def test_tasks_that_are_done_are_forgotten_after_a_week_and_dead_ones_are_not(bot):
    async with bot.store.transaction() as tx:
        tx.enqueue("relay", "gone")
    await bot.send("push", {"ref": "refs/heads/main"})
    await bot.settle()
    before = {row["id"] for row in await bot.rows("task") if row["state"] == "done"}
    await later(bot, days=6)
    assert before <= {row["id"] for row in await bot.rows("task")}
    await later(bot, days=2)
    rows = await bot.rows("task")
    assert before.isdisjoint(row["id"] for row in rows)
    assert "dead" in {row["state"] for row in rows}


@pytest.mark.logic
async def test_many_deliveries_are_deleted_batch_by_batch(bot):
    stars = (Incoming(guid=f"star {number}", event="star", body=b"{}") for number in range(450))
    await asyncio.gather(*map(bot.context.intake.put, stars))
    await bot.settle()
    await later(bot, days=1)
    assert len(await guids(bot)) >= 450
    await later(bot, days=90)
    assert await guids(bot) == {}


# How much of the disk do repositories get that have nothing to do with us?


MEGABYTE = 1024 * 1024


async def noise(bot, github, repo, count):
    """Deliver so many bodies of half a megabyte, which do not get smaller when compressed."""
    drawn = random.Random(5)
    about = {"id": github.state.repo(repo).id, "full_name": repo, "private": False}
    for number in range(count):
        issue = {"id": number + 1, "number": number + 1, "body": drawn.randbytes(MEGABYTE // 4).hex()}
        guid = f"{repo.replace('/', '-')}-{number}"
        assert (
            await bot.send("issues", {"action": "opened", "issue": issue, "repository": about}, guid=guid)
        )[0] == 202
    await bot.settle()


async def test_strangers_deliveries_take_no_more_than_their_share_of_the_disk(
    settings, github, issuer, clock
):
    strange = "some/body"
    github.add_repo(strange)
    few = replace(settings, others_raw_mb=2)
    async with running(few, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        for repo in (UPSTREAM, L2, strange):
            await noise(bot, github, repo, 8)
        await bot.wait(2 * 3600)
        rows = sorted(await bot.rows("delivery"), key=lambda row: row["id"])
        left = [row["guid"] for row in rows if "-" in row["guid"]]
        of_strangers = [guid for guid in left if guid.startswith("some-body")]
        assert 2 <= len(of_strangers) <= 7
        assert of_strangers[-1] == "some-body-7"
        held = sum(len(row["body"]) for row in rows if row["guid"] in of_strangers)
        assert held <= 2 * MEGABYTE
        for repo in (UPSTREAM, L2):
            assert len([guid for guid in left if guid.startswith(repo.replace("/", "-"))]) == 8
