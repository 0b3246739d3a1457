"""Clocks that are wrong, clocks that differ, and times that have only seconds."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from gidgethub.routing import Router

from bot.app import make_context
from bot.core.clock import SystemClock
from bot.db.installation import DatabaseClock
from bot.demo.github import payloads
from bot.ops import doctor
from bot.ops.doctor import Target
from bot.worker import Worker
from tests.clocks import Off
from tests.harness import L1, L2, L3, L4, UPSTREAM, ManualClock, running
from tests.process import PATIENCE
from tests.serving import POSTGRES, SQLITE

# Does a bot whose clock is wrong still work? GitHub refuses what is signed for another time.


HOUR = 3_600_000  # milliseconds


class Wrong(ManualClock):
    """A clock that goes as another does, some seconds off."""

    def __init__(self, right, off):
        self.right, self.off = right, round(off * 1000)

    @property
    def at(self):
        return self.right.at + self.off

    @at.setter
    def at(self, value):
        self.right.at = value - self.off


@pytest.mark.logic
@pytest.mark.parametrize("minutes", [-10, -2, 2, 10])
async def test_a_clock_that_is_minutes_off_costs_nothing_on_githubs_side(
    settings, github, issuer, clock, minutes, capsys
):
    wrong = Wrong(clock, minutes * 60)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=wrong) as bot:
        pull = await github.open_pull(UPSTREAM)
        await bot.settle(horizon=30)
        assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"sent"}
        assert bot.dispatch(L4).client_payload["event_type"] == "pull_request"
        assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"
    told = [line for line in capsys.readouterr().out.splitlines() if "clock is wrong" in line]
    assert (len(told), minutes in {-10, 10, 2}) in {(1, True), (0, False), (0, True)}
    refused = [call for call in github.calls if call.status == 401]
    assert len(refused) <= 3


@pytest.mark.logic
async def test_a_key_that_github_does_not_accept_is_no_missing_installation(bot, github):
    github.faults.add(path="/installation$", status=401, body={"message": "Bad credentials"}, times=8)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"pending"}
    await bot.settle(horizon=600)
    assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"sent"}
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"


@pytest.mark.logic
async def test_a_clock_that_was_hours_ahead_and_is_put_right_keeps_nothing_waiting(
    settings, github, issuer, clock
):
    wrong = Wrong(clock, 0)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=wrong) as bot:
        wrong.off = 6 * HOUR
        await github.open_pull(UPSTREAM)
        await bot.settle(horizon=30)
        wrong.off = 0
        pull = await github.open_pull(UPSTREAM)
        await bot.settle(horizon=120)
        assert "oot / gate" in bot.checks(UPSTREAM, pull.head_sha)
        waiting = [row for row in await bot.rows("task") if row["state"] == "waiting"]
        assert max(row["due_at"] for row in waiting) <= bot.clock.now() + HOUR


@SQLITE  # PostgreSQL's own clock is the one that counts there
async def test_a_clock_put_right_heeds_what_github_asks_for(settings, github, issuer, clock):
    wrong = Wrong(clock, 0)
    busy = {"method": "POST", "path": f"{L4}/dispatches$", "status": 429, "times": 1}
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=wrong) as bot:
        for ahead in (6 * HOUR, 0):
            wrong.off = ahead
            github.faults.add(**busy, headers={"Retry-After": "600"})
            before = len(github.calls)
            await github.open_pull(UPSTREAM)
            await bot.settle(horizon=90)
            org = L4.partition("/")[0]
            tried = [call for call in github.calls[before:] if call.path.startswith(f"/repos/{org}/")]
            refused = next(call for call in tried if call.path == f"/repos/{L4}/dispatches")
            # what was on its way already when GitHub refused is sent within the pauses between writes
            assert not [call for call in tried if call.method == "POST" and call.at > refused.at + 1000]
            await bot.settle(horizon=660)


# Do machines whose clocks differ by minutes work together? Their leases and due times are the database's.


MINUTES = 10


@contextlib.asynccontextmanager
async def on_machine(settings, machine, kinds):
    """A worker's parts on a machine with this clock, as `serve` puts them together."""
    clock = DatabaseClock(machine)
    async with make_context(settings, clock=clock) as context, clock.synchronized(context.store):
        yield context.store, Worker(context, router=Router(), kinds=kinds, periodic={})


async def work(worker, until):
    """Do what is due: clocks that were put right still differ by a moment."""
    while not until.is_set():
        await worker.step()


@POSTGRES
async def test_nothing_is_done_twice_and_nothing_waits(settings):
    begun, goes_on, ran = asyncio.Event(), asyncio.Event(), []

    async def long(_context, task):
        ran.append(task.id)
        begun.set()
        await goes_on.wait()

    kinds = {"long": long}
    async with (
        on_machine(settings, Off(MINUTES), kinds) as ahead,
        on_machine(settings, Off(-MINUTES), kinds) as behind,
    ):
        for (store, asks), (_, does) in ((ahead, behind), (behind, ahead)):
            begun.clear()
            goes_on.clear()
            async with store.transaction() as tx:
                tx.enqueue("long", "a")
            doing = asyncio.create_task(work(does, goes_on))
            await asyncio.wait_for(begun.wait(), PATIENCE)
            await asks.prepare()  # takes over what the dead have left
            assert await asks.step() is False
            goes_on.set()
            await doing
    assert len(ran) == len(set(ran)) == 2


@POSTGRES
async def test_a_clock_that_is_set_while_the_bot_runs_is_noticed(settings, capsys):
    machine = Off(0)
    clock, right = DatabaseClock(machine), SystemClock()
    async with make_context(settings, clock=clock) as context:
        for minutes in (0, MINUTES, -MINUTES, 0):
            machine.minutes = minutes
            await clock.compare(context.store)
            assert abs(clock.now() - right.now()) < 60_000
    said = [line for line in capsys.readouterr().out.splitlines() if "clock is" in line]
    assert [("wrong" in line, "right again" in line) for line in said] == [(True, False)] * 2 + [
        (False, True)
    ]


@POSTGRES
@pytest.mark.parametrize(
    ("minutes", "status", "detail"),
    [
        (0, "ok", "that of the database"),
        (10, "warning", "600 s ahead of the database's"),
        (-10, "warning", "600 s behind the database's"),
    ],
)
async def test_doctor_names_a_clock_that_is_not_the_databases(bot, settings, minutes, status, detail):
    target = Target(settings=settings, store=bot.store, http=bot.http, clock=Off(minutes), apps=())
    (found,) = await doctor.check_database_clock(target)
    assert (found.name, found.status) == ("database clock", status)
    assert found.detail == detail


# GitHub's times have seconds, and much happens in one: what do records say then, and later?


ROUND = 660  # seconds in which each periodic task runs once more


@pytest.mark.logic
async def test_of_two_edits_in_one_second_the_last_is_shown_in_the_end(bot, github):
    """Nothing in two such deliveries tells which came last, so half of them are taken for it wrongly, at first."""
    pulls = [await github.open_pull(UPSTREAM) for _ in range(8)]
    await bot.settle()
    bot.clock.advance(60)
    for pull in pulls:
        for title in ("first", "last"):
            pull.title, pull.updated_at = title, github.state.now()
            event = payloads.pull_request(github.state, pull, "edited", "alice")
            body = payloads.envelope(github.state, event, github.state.installed_on(pull.repo)[0])
            await bot.send("pull_request", body)
    await bot.settle()
    for _ in range(3):
        await bot.wait(ROUND)
    assert [row["title"] for row in await bot.rows("pull_request")] == ["last"] * len(pulls)


@pytest.mark.logic
async def test_of_two_pushes_in_one_second_told_in_the_wrong_order_the_last_is_relayed_in_the_end(
    bot, github
):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    bot.clock.advance(60)
    first, last = [await pushed(bot, github, pull) for _ in range(2)]
    busy = github.faults.add(path="/dispatches$", status=403, headers={"Retry-After": "60"}, times=100)
    for event in (last, first):
        await bot.send("pull_request", event)
        await bot.settle()
    github.faults.waiting.remove(busy)
    await bot.wait(120)
    assert sorted(told(github)[4:]) == sorted((name, first["after"]) for name in (L1, L2, L3, L4))
    for _ in range(4):
        await bot.wait(ROUND)
    assert sorted(told(github)[8:]) == sorted((name, last["after"]) for name in (L1, L2, L3, L4))
    assert bot.checks(UPSTREAM, last["after"])["oot / gate"][0] == "in_progress"


def told(github):
    """Which backends were told of which heads, in order."""
    return [
        (one.repo.full_name, one.client_payload["payload"]["pull_request"]["head"]["sha"])
        for one in github.dispatches
    ]


async def pushed(bot, github, pull):
    """Push to a pull request; returns what GitHub would tell of it, were it not silent."""
    address, bot.app.webhook_url = bot.app.webhook_url, None
    before = pull.head_sha
    await github.push_commit(pull)
    bot.app.webhook_url = address
    moved = {"before": before, "after": pull.head_sha}
    event = payloads.pull_request(github.state, pull, "synchronize", "alice", **moved)
    return payloads.envelope(github.state, event, github.state.installed_on(pull.repo)[0])


@pytest.mark.logic
async def test_a_check_run_opened_again_shows_its_last_end(bot, github):
    """GitHub tells nobody that one was opened again, only that it was completed anew."""
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle()
    (told,) = [
        one.payload
        for one in github.deliveries
        if (one.event, one.action) == ("check_run", "completed") and one.payload["check_run"]["name"] == "oot / tpu"
    ]  # fmt: skip
    again = told["check_run"] | {"status": "in_progress", "conclusion": None, "completed_at": None}
    await bot.send("check_run", told | {"action": "created", "check_run": again})
    for _ in range(3):
        await bot.wait(ROUND)
    assert await shown(bot, again["id"]) == ("completed", "failure")
    ended = again | {"status": "completed", "conclusion": "success", "completed_at": "2099-01-01T00:00:00Z"}
    await bot.send("check_run", told | {"check_run": ended})
    await bot.settle()
    assert await shown(bot, again["id"]) == ("completed", "success")


async def shown(bot, check_run_id):
    (row,) = [row for row in await bot.rows("check_run") if row["id"] == check_run_id]
    return row["status"], row["conclusion"]
