"""Do three processes answer as one? `ootbot serve` on two cores: one takes webhooks, one works, one makes pages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys

import aiohttp
import pytest
import sqlalchemy as sa

from bot.core.clock import SystemClock
from tests.harness import SECRET, UPSTREAM, UPSTREAM_ID, sign
from tests.process import ADMIN_TOKEN, PATIENCE, ROOT, Process, children, name_of, named, options_for, until
from tests.serving import POSTGRES, converse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

BODY = json.dumps(
    {
        "action": "opened",
        "issue": {"id": 7, "number": 1},
        "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM},
    }
).encode()
APPLIED = 'ootbot_deliveries_applied_total{outcome="taken"}'
ADMIN = {"Authorization": f"Bearer {ADMIN_TOKEN}"}


@pytest.fixture
def clock():
    """A process lives in the present."""
    return SystemClock()


class Processes:
    """Three processes, seen from outside."""

    def __init__(self, process, http):
        self.process, self.http = process, http

    async def deliver(self, guid):
        headers = {
            "Content-Type": "application/json", "X-GitHub-Event": "issues", "X-GitHub-Delivery": guid,
            "X-Hub-Signature-256": sign(BODY, SECRET),
        }  # fmt: skip
        url = f"{self.process.url}/api/github/webhooks"
        async with self.http.post(url, data=BODY, headers=headers) as answer:
            return answer.status

    async def get(self, path, **headers):
        async with self.http.get(self.process.url + path, headers=headers) as answer:
            return answer.status, await answer.text()

    async def handled(self, guid):
        """Whether a delivery was handled."""
        status, text = await self.get(f"/api/admin/deliveries/{guid}", **ADMIN)
        return status == 200 and json.loads(text)["delivery"]["state"] == "handled"

    async def counts(self, line):
        return line in (await self.get("/metrics", **ADMIN))[1]

    async def missing(self):
        return json.loads((await self.get("/readyz", **ADMIN))[1])["missing"]

    async def ready(self):
        return not await self.missing()

    def others(self):
        return named(self.process.pid)

    def priorities(self):
        """How nice each is to others, by name."""
        pids = {"listening": self.process.pid, **self.others()}
        return {name: os.getpriority(os.PRIO_PROCESS, pid) for name, pid in pids.items()}

    async def kill(self, name):
        """Kill one, and wait until another one has taken its place."""
        before = self.others()[name]
        os.kill(before, signal.SIGKILL)
        await eventually(lambda: self.replaced(name, before), f"another {name}")

    async def replaced(self, name, before):
        return self.others().get(name, before) != before


async def eventually(condition, what):
    try:
        async with asyncio.timeout(PATIENCE):
            while not await condition():  # noqa: ASYNC110 - other processes are at work
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"waited {PATIENCE:.0f} s for {what}")


@contextlib.asynccontextmanager
async def running(folder, app_key, **options):
    process = Process(folder, **options_for(folder, private_key=app_key), PROCESSES="3", **options)
    answers = await process.start()
    try:
        await asyncio.wait_for(answers.wait(), PATIENCE)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as http:
            served = Processes(process, http)
            await eventually(served.ready, "three that answer")
            yield served
    finally:
        process.kill()
        await process.ended()


async def test_whoever_listens_comes_before_those_that_work(tmp_path, app_key):
    async with running(tmp_path, app_key) as served:
        await served.kill("worker")
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        assert served.priorities() == {"listening": usual, "worker": usual + 5, "pages": usual + 5}


async def test_one_connection_is_answered_by_whoever_does_the_work(tmp_path, app_key):
    async with running(tmp_path, app_key) as served:
        for turn in range(3):
            assert await served.deliver(f"turn-{turn}") == 202
            assert (await served.get("/admin"))[0] == 401
            assert (await served.get("/healthz"))[0] == 200
            async with served.http.post(f"{served.process.url}/api/oot/callback", json={}) as answer:
                assert (answer.status, (await answer.json())["error"]) == (401, "invalid_token")
            await eventually(lambda turn=turn: served.handled(f"turn-{turn}"), "its handling")
        _, text = await served.get("/metrics", **ADMIN)
        assert 'ootbot_deliveries_total{outcome="stored"} 3.0' in text, "counted by the one that listens"
        await eventually(lambda: served.counts(f"{APPLIED} 3.0"), "the worker's count, made after its commit")
        assert 'ootbot_request_seconds_count{door="page",status="4xx"} 3.0' in text, (
            "by the one with the pages"
        )
        assert "ootbot_build_info" in text
        await served.kill("worker")
        await eventually(served.ready, "another worker")
        assert await served.deliver("later") == 202
        await eventually(lambda: served.handled("later"), "its handling")
        await eventually(lambda: served.counts(f"{APPLIED} 4.0"), "what the dead one counted, too")


async def test_whatever_is_killed_is_started_again_and_nothing_waits_for_it(tmp_path, app_key):
    async with running(tmp_path, app_key) as served:
        os.kill(served.others()["pages"], signal.SIGSTOP)  # alive, but mute
        assert await served.deliver("beside-the-mute") == 202
        await served.kill("pages")
        assert (await served.get("/admin"))[0] == 401, "answered by somebody"
        for number in range(3):
            await served.kill("worker")
            assert await served.deliver(f"kill-{number}") == 202
            assert any(line.startswith("worker: ") for line in await served.missing()) or await served.ready()
        missing = []

        async def told():
            missing[:] = [line for line in await served.missing() if "killed by signal 9" in line]
            if not missing and (worker := served.others().get("worker")):
                os.kill(worker, signal.SIGKILL)
            return bool(missing)

        await eventually(told, "word of one that dies again and again")
        assert await served.deliver("meanwhile") == 202
        await eventually(served.ready, "three that answer")
        for guid in ("beside-the-mute", "kill-0", "kill-1", "kill-2", "meanwhile"):
            await eventually(lambda guid=guid: served.handled(guid), guid)
        os.kill(served.process.pid, signal.SIGTERM)
        assert await asyncio.wait_for(served.process.ended(), PATIENCE) == 0
        assert not any("Traceback" in line for line in served.process.said)


async def test_none_outlives_the_one_that_listens_and_the_next_starts_at_once(tmp_path, app_key):
    async with running(tmp_path, app_key) as served:
        others = served.others()
        assert sorted(others) == ["pages", "worker"]
        served.process.kill()
        await served.process.ended()
        ready = await served.process.start()
        await asyncio.wait_for(ready.wait(), PATIENCE)
        assert not any(map(name_of, others.values()))
        assert await served.deliver("after") == 202
        await eventually(lambda: served.handled("after"), "its handling")


async def test_a_body_that_comes_in_pieces_arrives_whole_where_it_belongs(tmp_path, app_key):
    async with running(tmp_path, app_key) as served:
        head = b"POST /api/oot/callback HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        body = b'{"delivery_id": "' + b"x" * 300_000 + b'"}'
        whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        for pieces in ([whole], [whole[:10], whole[10:50_000], whole[50_000:]], [whole[:-1], whole[-1:]]):
            status, answer = await converse(served.process.url, *pieces, pause=0.05)
            assert (status, answer["error"]) == (401, "invalid_token")


PAGE = b"GET /api/admin/tasks HTTP/1.1\r\nHost: localhost\r\n\r\n"


WRITTEN = {
    "in pieces": [PAGE[:3], PAGE[3:12], PAGE[12:]],
    "behind an empty line": [b"\r\n" + PAGE],
    "with the host": [PAGE.replace(b"/api", b"http://localhost/api")],
    "with spaces": [PAGE.replace(b"GET /api/admin/tasks", b"GET   /api/admin/tasks?x=/healthz")],
}


async def test_no_way_of_writing_a_request_chooses_the_process(tmp_path, app_key):
    """Limits are kept by the process that makes pages: it alone must be asked, even while it does not answer."""
    async with running(tmp_path, app_key) as served:
        pages = served.others()["pages"]
        os.kill(pages, signal.SIGSTOP)
        answers = {
            how: asyncio.create_task(converse(served.process.url, *pieces, pause=0.05))
            for how, pieces in WRITTEN.items()
        }
        await asyncio.wait(answers.values(), timeout=1.0)
        assert [how for how, answer in answers.items() if answer.done()] == [], "answered by another process"
        os.kill(pages, signal.SIGCONT)
        for how, answer in answers.items():
            assert (await answer)[0] == 401, how


async def test_a_request_behind_another_ones_is_not_answered_by_its_process(tmp_path, app_key):
    async with running(tmp_path, app_key) as served:
        url = served.process.url
        first = PAGE.replace(b"/api/admin/tasks", b"/healthz")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(first + PAGE)
        async with asyncio.timeout(PATIENCE):
            assert [line.split()[1] for line in (await reader.read()).splitlines() if b"HTTP/1.1" in line] == [
                b"200", b"421",
            ]  # fmt: skip
        writer.close()


async def test_bytes_in_a_header_that_are_no_text_reach_the_other_processes(tmp_path, app_key):
    odd = b"Host: localhost\r\nAuthorization: \xff\r\nCookie: ootbot_admin=\xff\r\nConnection: close\r\n\r\n"
    async with running(tmp_path, app_key) as served:
        for path in (b"/readyz", b"/metrics"):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", int(served.process.url.rpartition(":")[2])
            )
            writer.write(b"GET %s HTTP/1.1\r\n" % path + odd)
            async with asyncio.timeout(PATIENCE):
                assert (await reader.read()).split()[1] == b"200", path
            writer.close()


# Does `ootbot serve` answer where it cannot have the processes it wants, or is told to end before it answers?


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
    assert children(served.process.pid) == []
    assert await served.ready()
    assert await served.deliver("alone") == 202
    await eventually(lambda: served.handled("alone"), "its handling")


async def test_where_no_process_can_be_started_one_does_everything(start):
    served = await start(TWO_CORES + NO_FORK)
    assert children(served.process.pid) == []
    assert any("more processes cannot be started" in line for line in served.process.said)
    assert await served.ready()
    assert await served.deliver("alone") == 202
    await eventually(lambda: served.handled("alone"), "its handling")


async def test_nothing_needs_a_temporary_folder_that_can_be_written(start):
    served = await start(TWO_CORES + NO_TMP)
    assert len(children(served.process.pid)) == 2
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
