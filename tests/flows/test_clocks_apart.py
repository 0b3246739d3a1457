"""Do machines whose clocks differ by minutes work together? Their leases and due times are the database's."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from gidgethub.routing import Router

from bot.app import make_context
from bot.core.clock import SystemClock
from bot.db.installation import DatabaseClock
from bot.ops import doctor
from bot.ops.doctor import Target
from bot.worker import Worker
from tests.clocks import Off
from tests.process import PATIENCE
from tests.serving import POSTGRES

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
