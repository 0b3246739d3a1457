"""Several processes on one PostgreSQL: everything is done once, at once, and by one allowlist."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import Counter
from pathlib import Path

import aiohttp
import msgspec
import pytest
import sqlalchemy as sa
from gidgethub.routing import Router

from bot.app import make_context, make_worker
from bot.core.clock import SystemClock
from bot.ingest import inbox
from bot.ingest.inbox import Incoming
from bot.oot.allowlist import versions
from bot.worker import Worker
from tests.harness import ALLOWLIST, L2, L4, SECRET, UPSTREAM, UPSTREAM_ID, sign
from tests.process import PATIENCE, Process, options_for, until
from tests.serving import POSTGRES, SQLITE
from tests.workers import NEVER, at_work, eventually

# Do several workers on one PostgreSQL do everything once? Also when one of them is killed, or told to stop.


LOOK = 0.01  # seconds between looks


@contextlib.asynccontextmanager
async def workers(settings, clock, number, *, router=None, kinds, periodic=None):
    """So many workers at work on what the test gives them to do, each with a context of its own."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for _ in range(number):
            context = await stack.enter_async_context(make_context(settings, clock=clock))
            made.append(
                Worker(context, router=router or Router(), kinds=kinds, periodic=periodic or {}, poll=LOOK)
            )
        working = [asyncio.create_task(one.run()) for one in made]
        try:
            yield
        finally:
            for one in made:
                one.stop()
            await asyncio.gather(*working)


@POSTGRES
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
    assert (await bot.send("issues", issue(number)))[0] == 202


@POSTGRES
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


@POSTGRES
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


@POSTGRES
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


# Do all processes judge by the same allowlist? A version one of them has read is in force in the others at once.


@POSTGRES
async def test_who_is_taken_off_the_list_is_refused_by_every_process_at_once(bot, settings, clock, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L4)
    assert (await bot.report(dispatch, status="in_progress"))[0] == 200
    before = len(bot.github.dispatches)
    async with make_context(settings, clock=clock) as worker:
        Path(settings.allowlist).write_text(f"L2: [{L2}]\n")
        await versions.refresh(worker)
        status, answer = await bot.report(dispatch)
        assert (status, answer["error"]) == (403, "not_listed")
        _, listed = await bot.get("/api/oot/allowlist")
        assert [entry["repo"] for entry in listed["entries"]] == [L2]
        await github.open_pull(UPSTREAM)
        await bot.settle()
        assert [one.repo.full_name for one in bot.github.dispatches[before:]] == [L2]

        Path(settings.allowlist).write_text(ALLOWLIST)
        await versions.refresh(worker)
        assert (await bot.report(dispatch))[0] == 200


@POSTGRES
async def test_a_list_two_processes_read_at_once_is_kept_once(bot, settings, clock):
    async with make_context(settings, clock=clock) as one, make_context(settings, clock=clock) as other:
        Path(settings.allowlist).write_text(f"L2: [{L2}]\n")
        before = len(await bot.rows("allowlist_version"))
        await asyncio.gather(versions.refresh(one), versions.refresh(other))
        assert len(await bot.rows("allowlist_version")) == before + 1


# Does a worker take at once what another process stored? Rung through PostgreSQL; its own looks are an hour apart.


LARGE = 9 * 1024 * 1024  # bytes: of such bodies two are handled together


def issue(number, title="It is slow"):
    return {
        "action": "opened",
        "issue": {"id": number, "number": number, "title": title},
        "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM},
    }


async def delivered(bot, number):
    """Deliver an issue to a process that does no work; returns when its record is there."""
    await deliver(bot, number)
    await kept(bot, number)


async def kept(bot, number):
    """Return when the record of an issue is there."""

    async def found():
        return any(row["id"] == number for row in await bot.rows("issue"))

    await eventually(found, f"the record of issue {number}")


async def ask_for_a_task(bot, key):
    """Ask for a task in a process that does no work; returns when it is done."""
    async with bot.store.transaction() as tx:
        tx.enqueue("publish", key)

    async def done():
        return [row for row in await bot.rows("task") if row["key"] == key and row["state"] == "done"]

    await eventually(done, f"the end of {key}")


@POSTGRES
async def test_what_a_web_process_stores_a_worker_takes_at_once(bot, settings, clock):
    async with at_work(settings, clock):
        for number in range(1, 6):
            await delivered(bot, number)
            await ask_for_a_task(bot, f"{UPSTREAM}#{number}")


@pytest.mark.nightly
@POSTGRES
async def test_a_worker_whose_line_was_cut_listens_again(bot, settings, clock):
    cut = sa.text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND query LIKE 'LISTEN %'"
    )
    async with at_work(settings, clock):
        await delivered(bot, 1)
        for number in (2, 3):

            async def cut_it():
                async with bot.store.transaction() as tx:
                    return await tx.rows(cut)

            await eventually(cut_it, "a line to cut")
            await delivered(bot, number)


@pytest.mark.logic
async def test_large_deliveries_left_to_the_next_look_do_not_wait_until_somebody_rings(bot):
    worker = make_worker(bot.context, poll=NEVER)
    working = asyncio.create_task(worker.run())

    async def idle():
        return all(
            row["due_at"] > bot.clock.now() for row in await bot.rows("task") if row["state"] != "done"
        )

    await eventually(idle, "a worker that has nothing to do")
    async with bot.store.transaction() as tx:
        for number in range(1, 6):
            body = msgspec.json.encode(issue(number, "x" * LARGE))
            await inbox.store_delivery(tx, Incoming(guid=f"large-{number}", event="issues", body=body))
    await kept(bot, 5)
    worker.stop()
    await working


# Which process does what? Web and worker apart on one PostgreSQL; on SQLite one process, and no second.


ISSUE = (
    b'{"action":"opened","issue":{"id":7,"number":1},"repository":{"id":5,"full_name":"%b","private":false}}'
    % UPSTREAM.encode()
)


@contextlib.asynccontextmanager
async def started(*processes):
    """Start processes and wait until they answer; killed in the end."""
    try:
        for one in processes:
            await asyncio.wait_for((await one.start()).wait(), PATIENCE)
        yield
    finally:
        for one in processes:
            one.kill()
            await one.ended()


async def outcome(process):
    """Start a process that ends by itself; returns its exit code and what it said."""
    await process.start()
    return await asyncio.wait_for(process.ended(), PATIENCE), process.said


async def get(http, url):
    async with http.get(url) as answer:
        return answer.status, await answer.json() if "json" in answer.content_type else None


async def post_issue(http, url, guid="g-1"):
    headers = {"Content-Type": "application/json", "X-GitHub-Event": "issues", "X-GitHub-Delivery": guid,
               "X-Hub-Signature-256": sign(ISSUE, SECRET)}  # fmt: skip
    async with http.post(f"{url}/api/github/webhooks", data=ISSUE, headers=headers) as answer:
        return answer.status


@POSTGRES
async def test_web_stores_what_a_worker_handles(tmp_path, database_url, app_key):
    options = options_for(tmp_path, private_key=app_key) | {"DATABASE_URL": database_url}
    web = Process(tmp_path, ROLE="web", **options)
    worker = Process(tmp_path, ROLE="worker", PUBLIC_URL=web.url, **options)
    async with aiohttp.ClientSession() as http, started(web):
        assert await post_issue(http, web.url) == 202
        status, ready = await get(http, f"{web.url}/readyz")
        assert (status, ready["role"]) == (503, "web")  # nobody has read the allowlist yet
        assert "allowlist" in ready["missing"][0]
        record = f"{web.url}/api/records/issue/{UPSTREAM}/1"
        assert (await get(http, record))[0] == 404
        async with started(worker):
            async with asyncio.timeout(PATIENCE):
                while (await get(http, record))[0] != 200:  # noqa: ASYNC110 - another process is at work
                    await asyncio.sleep(0.05)
            status, ready = await get(http, f"{worker.url}/readyz")
            assert (status, ready["role"]) == (200, "worker")
            assert (await get(http, f"{web.url}/readyz"))[0] == 200
            assert (await get(http, f"{worker.url}/healthz"))[0] == 200
            assert (await get(http, f"{worker.url}/metrics"))[0] == 200
            assert await post_issue(http, worker.url) == 404
            assert (await get(http, f"{worker.url}/oot"))[0] == 404


@SQLITE
@pytest.mark.parametrize("role", ["web", "worker"])
async def test_on_sqlite_roles_are_refused_with_the_next_step(tmp_path, database_url, app_key, role):
    options = options_for(tmp_path, private_key=app_key) | {"PUBLIC_URL": "https://ootbot.example.org"}
    code, said = await outcome(Process(tmp_path, ROLE=role, **options))
    assert code == 2
    (line,) = said
    assert f"OOTBOT_ROLE={role}" in line
    assert "OOTBOT_DATABASE_URL" in line
    assert not (tmp_path / "ootbot.db").exists()


@POSTGRES
async def test_a_worker_has_to_be_told_where_the_pages_are(tmp_path, database_url, app_key):
    options = options_for(tmp_path, private_key=app_key) | {"DATABASE_URL": database_url}
    code, said = await outcome(Process(tmp_path, ROLE="worker", **options))
    assert code == 2
    assert "OOTBOT_PUBLIC_URL" in said[0]


async def test_a_port_that_is_taken_is_named(tmp_path, app_key):
    process = Process(tmp_path, **options_for(tmp_path, private_key=app_key))
    with socket.create_server(("127.0.0.1", process.port)):
        code, said = await outcome(process)
    assert code == 2
    (line,) = said
    assert f"127.0.0.1:{process.port}" in line
    assert "OOTBOT_PORT" in line


async def test_sqlite_has_one_server_and_lets_the_next_in_when_that_was_killed(tmp_path, app_key):
    options = options_for(tmp_path, private_key=app_key)
    first, second = Process(tmp_path, **options), Process(tmp_path, **options)
    async with started(first):
        code, said = await outcome(second)
        assert code == 2
        (line,) = said
        assert f"process {first.pid} " in line
        assert str(tmp_path / "ootbot.db") in line
    async with started(second):
        await until(lambda: second.rows("SELECT id FROM allowlist_version"), what="the second at work")
