"""Does `ootbot serve` answer where it cannot have the processes it wants, or is told to end before it answers?"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys

import aiohttp
import pytest
import sqlalchemy as sa

from bot.core.clock import SystemClock
from tests import processes
from tests.flows.test_several_processes import ADMIN, Processes, eventually, running
from tests.process import PATIENCE, ROOT, Process, options_for, until
from tests.serving import POSTGRES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
ONE_CORE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
TWO_CORES = "import os; os.sched_getaffinity = lambda pid: {0, 1}"
# as the system does where no more processes are allowed
NO_FORK = """
import errno, os, _posixsubprocess, subprocess
def refuse(*_):
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
os.fork = _posixsubprocess.fork_exec = subprocess._fork_exec = refuse
"""
# what Python says where neither /tmp nor any other such folder can be written
NO_TMP = """
import errno, tempfile
def refuse(*_):
    raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")
tempfile.gettempdir = tempfile._get_default_tempdir = refuse
"""
DIES = """
import os, sys
if "bot.console.member" in sys.orig_argv:
    os._exit(3)
fork = os.fork
def fork_one_that_dies():
    if pid := fork():
        return pid
    os._exit(3)
os.fork = fork_one_that_dies
"""


@pytest.fixture
def clock():
    """A process lives in the present."""
    return SystemClock()


class OnThatMachine(Process):
    """`ootbot serve` where the system is as some lines of Python say, which run first."""

    def __init__(self, folder, lines, **options):
        super().__init__(folder, **options)
        self._lines = lines

    async def start(self):
        environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
        environ |= {f"OOTBOT_{name}": value for name, value in self._options.items()}
        environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(self._folder)])
        lines = f"{self._lines}\nfrom bot.cli import main\nmain(['serve'])"
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", lines, cwd=self._folder, env=environ,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        ready = asyncio.Event()
        self._listening = asyncio.create_task(self._listen(ready))
        return ready


@pytest.fixture
async def start(tmp_path, app_key):
    """Start one on a machine like this, with PROCESSES=auto, and return it."""
    async with aiohttp.ClientSession() as http:
        started = []

        async def begin(lines):
            options = options_for(tmp_path, private_key=app_key)
            process = OnThatMachine(tmp_path, lines, **options, PROCESSES="auto")
            started.append(process)
            await asyncio.wait_for((await process.start()).wait(), PATIENCE)
            return Processes(process, http)

        yield begin
        for process in started:
            process.kill()
            await process.ended()


async def test_on_one_core_one_process_does_everything(start):
    served = await start(ONE_CORE)
    assert processes.children(served.process.pid) == []
    assert await served.ready()
    assert await served.deliver("alone") == 202
    await eventually(lambda: served.handled("alone"), "its handling")


async def test_where_no_process_can_be_started_one_does_everything(start):
    served = await start(TWO_CORES + NO_FORK)
    assert processes.children(served.process.pid) == []
    assert any("more processes cannot be started" in line for line in served.process.said)
    assert await served.ready()
    assert await served.deliver("alone") == 202
    await eventually(lambda: served.handled("alone"), "its handling")


async def test_nothing_needs_a_temporary_folder_that_can_be_written(start):
    served = await start(TWO_CORES + NO_TMP)
    assert len(processes.children(served.process.pid)) == 2
    assert await served.deliver("stored") == 202
    await eventually(lambda: served.handled("stored"), "its handling")
    assert (await served.get("/oot", **ADMIN))[0] == 200


@pytest.mark.nightly
async def test_one_that_dies_at_once_is_waited_for_ever_longer_while_requests_are_answered(start, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(DIES)
    served = await start(TWO_CORES)

    def waits(name):
        text = "\n".join(line for line in served.process.said if f"process={name}" in line)
        return [float(wait) for wait in re.findall(r"again_in=([0-9.]+)", text)]

    await until(lambda: min(len(waits("worker")), len(waits("pages"))) >= 4, what="some ends")
    for name in ("worker", "pages"):
        assert waits(name)[:4] == [0.1, 0.2, 0.4, 0.8]
        (why,) = [line for line in await served.missing() if line.startswith(f"{name}: ")]
        assert "ended with code 3" in why
    assert await served.deliver("meanwhile") == 202
    assert (await served.get("/admin"))[0] == 401, "answered by the one that listens"
    (tmp_path / "sitecustomize.py").write_text("")
    await eventually(lambda: served.handled("meanwhile"), "its handling once a worker lives")


@POSTGRES
async def test_three_on_one_postgresql_share_the_work(tmp_path, app_key, database_url):
    async with running(tmp_path, app_key, DATABASE_URL=database_url) as served:
        assert sorted(served.others()) == ["pages", "worker"]
        assert await served.deliver("first") == 202
        await eventually(lambda: served.handled("first"), "its handling")
        await served.kill("worker")
        assert await served.deliver("second") == 202
        await eventually(lambda: served.handled("second"), "its handling by another worker")


async def test_it_ends_at_once_beside_a_postgresql_that_does_not_answer_its_first_connection(
    tmp_path, app_key
):
    connected, conversations = asyncio.Event(), []

    async def say_nothing(reader, writer):
        conversations.append(asyncio.current_task())
        connected.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"postgresql://ootbot@127.0.0.1:{port}/ootbot"
    bot = Process(tmp_path, DATABASE_URL=url, **options_for(tmp_path, private_key=app_key))
    async with server:
        ready = await bot.start()
        try:
            await asyncio.wait_for(connected.wait(), PATIENCE)
            os.kill(bot.pid, signal.SIGTERM)
            await asyncio.wait_for(bot.ended(), PATIENCE / 2)
        finally:
            bot.kill()
        await asyncio.wait_for(asyncio.gather(*conversations, return_exceptions=True), PATIENCE)
    assert not ready.is_set()
    assert not any("Traceback" in line for line in bot.said), bot.said


@POSTGRES
async def test_it_ends_at_once_beside_a_postgresql_that_stops_answering_while_it_starts(
    tmp_path, app_key, database_url
):
    theirs, mute, conversations = sa.make_url(database_url), asyncio.Event(), []

    async def pass_on(reader, writer):
        while data := await reader.read(65536):
            if b"FROM allowlist_version" in data:
                mute.set()
            if not mute.is_set():
                writer.write(data)
        writer.close()
        await writer.wait_closed()

    async def connect(reader, writer):
        conversations.append(asyncio.current_task())
        answers, there = await asyncio.open_unix_connection(f"{theirs.query['host']}/.s.PGSQL.5432")
        await asyncio.gather(pass_on(reader, there), pass_on(answers, writer), return_exceptions=True)

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = theirs.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
    bot = Process(tmp_path, DATABASE_URL=url, **options_for(tmp_path, private_key=app_key))
    async with server:
        await bot.start()
        try:
            await asyncio.wait_for(mute.wait(), PATIENCE)
            os.kill(bot.pid, signal.SIGTERM)
            assert await asyncio.wait_for(bot.ended(), PATIENCE / 2) == 0
        finally:
            bot.kill()
        await asyncio.wait_for(asyncio.gather(*conversations, return_exceptions=True), PATIENCE)
    assert not any("Traceback" in line for line in bot.said), bot.said
