"""Do several workers on one PostgreSQL do everything once? Also when one of them is killed, or told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter

import pytest
import sqlalchemy as sa
from gidgethub.routing import Router

from bot.app import make_context
from bot.core.clock import SystemClock
from bot.worker import Worker
from tests.harness import L4, UPSTREAM, UPSTREAM_ID
from tests.process import PATIENCE, Process, options_for
from tests.serving import POSTGRES
from tests.workers import eventually

pytestmark = POSTGRES
LOOK = 0.01  # seconds between looks


@contextlib.asynccontextmanager
async def workers(settings, clock, number, *, router=None, kinds, periodic=None):
    """So many workers at work on what the test gives them to do, each with a context of its own."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for _ in range(number):
            context = await stack.enter_async_context(make_context(settings, clock=clock))
            made.append(
                Worker(
                    context,
                    router=router or Router(),
                    kinds=kinds,
                    periodic=periodic or {},
                    poll=LOOK,
                )
            )
        working = [asyncio.create_task(one.run()) for one in made]
        try:
            yield
        finally:
            for one in made:
                one.stop()
            await asyncio.gather(*working)


async def test_four_workers_apply_every_delivery_and_run_every_task_once(bot, settings, clock):
    applied, ran, running, twice = Counter(), Counter(), set(), []
    router = Router()

    @router.register("issues")
    async def note(event, tx):
        applied[event.delivery_id] += 1
        tx.enqueue("probe", str(event.data["issue"]["number"] % 40))

    async def probe(context, task):
        if task.key in running:
            twice.append(task.key)
        running.add(task.key)
        for _ in range(3):
            async with context.store.read() as tx:
                await tx.rows(sa.text("SELECT 1"))
        running.discard(task.key)
        ran[task.id] += 1

    async with workers(settings, clock, 4, router=router, kinds={"probe": probe}):
        for first in range(0, 400, 20):
            await asyncio.gather(*(deliver(bot, first + number) for number in range(20)))

        async def over():
            rows = await bot.rows("delivery")
            tasks = [row for row in await bot.rows("task") if row["kind"] == "probe"]
            return all(row["state"] == "handled" for row in rows) and all(
                row["state"] == "done" for row in tasks
            )

        await eventually(over, "an end of the work")
    assert len(applied) == 400
    assert set(applied.values()) == {1}
    assert twice == []
    tasks = [row for row in await bot.rows("task") if row["kind"] == "probe"]
    assert {row["id"]: row["attempts"] for row in tasks} == dict(ran)
    assert set(ran.values()) == {1}


async def deliver(bot, number):
    issue = {"id": number, "number": number, "title": "It is slow"}
    payload = {"action": "opened", "issue": issue, "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM}}
    assert (await bot.send("issues", payload))[0] == 202


async def test_the_timetable_is_kept_once_however_many_workers_there_are_and_come(bot, settings, clock):
    runs = []

    async def tick(_context, _task):
        runs.append(clock.now())

    async def waits():
        rows = [row for row in await bot.rows("task") if row["kind"] == "tick" and row["state"] == "waiting"]
        return rows and rows[0]["due_at"] > clock.now()

    began = clock.now()
    async with contextlib.AsyncExitStack() as crew:
        for turn in range(6):
            if turn % 2 == 0:
                await crew.enter_async_context(
                    workers(settings, clock, 1 + turn // 2, kinds={"tick": tick}, periodic={"tick": 30.0})
                )
            await eventually(waits, "the next time")
            clock.advance(30)
            await eventually(waits, "the time after that")
    assert runs == [began + 30_000 * turn for turn in range(7)]


async def test_a_kind_of_a_newer_version_is_left_to_it(bot, settings, clock):
    async with bot.store.transaction() as tx:
        tx.enqueue("invented_later", "a")
        tx.enqueue("publish", f"{UPSTREAM}#1")
    await work(bot)
    states = {row["kind"]: (row["state"], row["attempts"]) for row in await bot.rows("task")}
    assert states["publish"][0] == "done"
    assert states["invented_later"] == ("waiting", 0)


class Ahead(SystemClock):
    """The machine's clock, put forward by the test: other processes live in the present."""

    by = 0  # milliseconds

    def now(self):
        return super().now() + self.by

    def advance(self, seconds):
        self.by += round(seconds * 1000)


class TestAProcessThatEnds:
    @pytest.fixture
    def clock(self):
        return Ahead()

    @pytest.fixture
    async def process(self, tmp_path, app_key, github, database_url):
        options = options_for(tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url)
        made = Process(
            tmp_path, ROLE="worker", DATABASE_URL=database_url, PUBLIC_URL="http://127.0.0.1:1", **options
        )
        await asyncio.wait_for((await made.start()).wait(), PATIENCE)
        yield made
        made.kill()
        await made.ended()

    async def test_killed_it_loses_nothing_once_its_leases_have_run_out(self, bot, github, clock, process):
        github.faults.add(method="POST", path=f"/{L4}/dispatches$", status=None, delay=20.0)
        await github.open_pull(UPSTREAM)
        await eventually(lambda: only_one_left(bot), "a dispatch under way")
        held = await dispatching(bot)
        process.kill()
        await process.ended()
        await bot.worker.prepare()
        await work(bot)
        assert await dispatching(bot) == held
        clock.advance(31)
        await bot.worker.prepare()
        await work(bot)
        assert await dispatching(bot) == []
        sent = Counter(dispatch.repo.full_name for dispatch in github.dispatches)
        assert sent[L4] == 1
        assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"sent"}

    @pytest.mark.nightly
    async def test_told_to_stop_it_returns_what_it_cannot_finish(self, bot, github, process):
        github.faults.add(method="POST", path=f"/{L4}/dispatches$", status=None, delay=30.0)
        await github.open_pull(UPSTREAM)
        await eventually(lambda: only_one_left(bot), "a dispatch under way")
        os.kill(process.pid, signal.SIGTERM)
        await asyncio.wait_for(process.ended(), PATIENCE)
        assert await dispatching(bot) == []
        waiting = [
            row for row in await bot.rows("task") if row["state"] == "waiting" and row["kind"] == "dispatch"
        ]
        assert {row["owner"] for row in waiting} == {None}


async def work(bot):
    """Let the test's own worker do what is due."""
    while await bot.worker.step():
        pass


async def only_one_left(bot):
    """Whether all dispatches were sent but the one that is held."""
    states = Counter(row["state"] for row in await bot.rows("oot_dispatch"))
    return states == {"sent": 3, "pending": 1} and len(await dispatching(bot)) == 1


async def dispatching(bot):
    """The ids of dispatches that run."""
    rows = await bot.rows("task")
    return [row["id"] for row in rows if row["kind"] == "dispatch" and row["state"] == "running"]
