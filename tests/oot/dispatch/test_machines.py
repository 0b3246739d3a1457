"""Dispatches wait for machines: at most so many at once and within a day, pull requests first, newest heads only."""

import pytest

from tests.flows.scenarios import dispatched_to, reasons, recorded, states
from tests.harness import L2, UPSTREAM
from tests.oot.dispatch.selected import entry, explanation, open_pull

pytestmark = pytest.mark.logic
ONE = entry("max_parallel: 1, events: [pull_request, push]")
SOON = 16  # seconds: how often machines are looked at


async def end_run(bot, conclusion="success"):
    """Have the newest run of the backend end, and the next one be sent."""
    await bot.report(bot.dispatch(L2), conclusion=conclusion, run_id=str(len(bot.github.dispatches)))
    await bot.settle()
    await bot.wait(SOON)


async def test_later_ones_wait_until_a_machine_is_free(bot, github):
    await bot.list_backends(ONE)
    pulls = [await open_pull(bot, github) for _ in range(4)]
    assert await states(bot, L2) == ["sent", "waiting", "waiting", "waiting"]
    (asked,) = (await explanation(bot, pulls[3]))["asked"]
    assert (asked["outcome"], asked["rule"]) == ("waiting", "machines")
    assert asked["why"] == "waiting for a machine: 2 before you (1 of at most 1 run at once)"
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pulls[3].number}")
    assert "waiting for a machine: 2 before you" in page
    _, underway = await bot.get("/api/oot/dispatches?state=queued")
    assert [one["pr"] for one in underway["dispatches"]] == [pull.number for pull in pulls[1:]]
    assert "waiting for a machine" in (await bot.get("/oot/dispatches"))[1]
    for number in (1, 2, 3):
        assert len(dispatched_to(github)) == number
        await bot.report(bot.dispatch(L2), status="in_progress", run_id=str(number))
        await bot.settle()
        await bot.wait(SOON)
        assert len(dispatched_to(github)) == number, "a run that goes on keeps its machine"
        await bot.report(bot.dispatch(L2), run_id=str(number))
        await bot.wait(SOON)
    numbers = [one.client_payload["payload"]["number"] for one in github.dispatches]
    assert numbers == [pull.number for pull in pulls]


async def test_the_newest_head_of_a_pull_request_wins(bot, github):
    await bot.list_backends(ONE)
    await open_pull(bot, github)
    pull = await open_pull(bot, github)
    for _ in range(2):
        bot.clock.advance(5)
        await github.push_commit(pull)
        await bot.settle()
    assert await states(bot, L2) == ["sent", "superseded", "superseded", "waiting"]
    await end_run(bot)
    assert bot.dispatch(L2).client_payload["payload"]["pull_request"]["head"]["sha"] == pull.head_sha
    assert len(dispatched_to(github)) == 2


async def test_a_closed_pull_request_waits_no_longer(bot, github):
    await bot.list_backends(ONE)
    await open_pull(bot, github)
    pull = await open_pull(bot, github)
    await github.close(pull)
    await bot.settle()
    assert (await states(bot, L2))[1] == "superseded"
    await end_run(bot)
    assert len(dispatched_to(github)) == 1 + 1, "only its closing is told"


async def test_pull_requests_go_before_pushes(bot, github):
    await bot.list_backends(ONE)
    await open_pull(bot, github)
    await github.push(UPSTREAM)
    await bot.settle()
    bot.clock.advance(5)
    pull = await open_pull(bot, github)
    await end_run(bot)
    assert bot.dispatch(L2).client_payload["payload"]["number"] == pull.number
    await end_run(bot)
    assert bot.dispatch(L2).event_type == "push"


async def test_runs_that_time_out_free_their_machine(bot, github):
    await bot.list_backends(entry("max_parallel: 1, start_timeout: 10m"))
    await open_pull(bot, github)
    await open_pull(bot, github)
    await bot.wait(15 * 60)
    await bot.wait(SOON)
    assert await states(bot, L2) == ["not_run", "sent"]


async def test_so_many_are_sent_within_a_day(bot, github):
    await bot.list_backends(entry("max_per_day: 2"))
    for _ in range(3):
        await open_pull(bot, github)
        await bot.report(bot.dispatch(L2), run_id=str(len(github.dispatches)))
        bot.clock.advance(3600)
        await bot.settle()
    assert await states(bot, L2) == ["sent", "sent", "waiting"]
    assert "2 of at most 2 dispatches sent within 24 hours: it goes on at 20" in (await reasons(bot, L2))[2]
    await bot.wait(20 * 3600)
    assert len(dispatched_to(github)) == 2
    await bot.wait(2 * 3600)
    assert len(dispatched_to(github)) == 3


async def test_limits_that_are_lifted_release_all(bot, github):
    await bot.list_backends(ONE)
    for _ in range(3):
        await open_pull(bot, github)
    await bot.list_backends(entry("events: [pull_request, push]"))
    await bot.wait(SOON)
    assert await states(bot, L2) == ["sent", "sent", "sent"]


async def test_a_backend_that_was_taken_off_is_sent_nothing(bot, github):
    await bot.list_backends(ONE)
    for _ in range(2):
        await open_pull(bot, github)
    await bot.list_backends("L1: []")
    await bot.wait(SOON)
    assert await states(bot, L2) == ["sent", "failed"]


async def test_what_waits_can_be_dropped_and_is_not_asked_for_twice(bot, github):
    await bot.list_backends(ONE)
    github.set_permission(UPSTREAM, "maintainer", "write")
    await open_pull(bot, github)
    pull = await open_pull(bot, github)
    bot.clock.advance(5)
    await github.comment(pull, f"/oot run {L2}", "maintainer")
    await bot.settle(horizon=5)
    assert await states(bot, L2) == ["sent", "waiting"]
    bot.clock.advance(5)
    await github.comment(pull, f"/oot cancel {L2}", "maintainer")
    await bot.settle(horizon=5)
    assert await states(bot, L2) == ["sent", "superseded"]
    await end_run(bot)
    assert len(dispatched_to(github)) == 1


async def test_after_a_week_it_waits_no_longer(bot, github):
    await bot.list_backends(entry("max_parallel: 1, job_timeout: 35d"))
    await open_pull(bot, github)
    await bot.report(bot.dispatch(L2), status="in_progress")
    await open_pull(bot, github)
    bot.clock.advance(8 * 86_400)
    await bot.wait(SOON)
    assert await recorded(bot, L2, "error") == [None, "it has waited 7 days for a machine"]
