"""What may strangers take of the bot at once? Room for large bodies, a number of connections, and little time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

import pytest

from bot.app import answering, make_app
from bot.web.bodies import BodyBudget
from bot.web.connections import ConnectionLimits
from tests.harness import SECRET, sign
from tests.serving import SQLITE, converse, request_head, serving

PATH = "/api/github/webhooks"
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
KIB = 1024
pytestmark = SQLITE


def delivery(guid, size):
    """Head and body of a signed delivery of that many bytes."""
    body = b'{"a":"' + b"x" * (size - 8) + b'"}'
    headers = {
        "Content-Type": b"application/json",
        "Content-Length": str(size).encode(),
        "X-GitHub-Event": b"star",
        "X-GitHub-Delivery": guid.encode(),
        "X-Hub-Signature-256": sign(body, SECRET).encode(),
    }
    return request_head("POST", PATH, headers), body


async def begin(url, guid, size, sent):
    """Send a delivery's first bytes; returns the connection and the rest."""
    head, body = delivery(guid, size)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(head + body[:sent])
    await writer.drain()
    return reader, writer, body[sent:]


async def arrived(served):
    """Return when what was sent before has come in: so have three calls and their answers."""
    for _ in range(3):
        assert (await served.get("/healthz"))[0] == 200


async def test_large_bodies_wait_for_room_and_small_ones_pass_them(bot):
    budget = BodyBudget(most_bytes=400 * KIB, most_bodies=9, patience=20)
    async with serving(bot, make_app(bot.context, body_budget=budget)) as served:
        reader, writer, rest = await begin(served.url, "first", 300 * KIB, 200 * KIB)
        await arrived(served)
        second = asyncio.create_task(converse(served.url, *delivery("second", 300 * KIB)))
        third = asyncio.create_task(converse(served.url, *delivery("third", 80 * KIB)))
        for size in (100, 60 * KIB):
            assert (await converse(served.url, *delivery(f"small-{size}", size)))[0] == 202
        assert not second.done()
        assert not third.done()
        writer.write(rest)
        assert (await reader.readline()).split()[1] == b"202"
        writer.close()
        assert [status for status, _ in await asyncio.gather(second, third)] == [202, 202]
    stored = [row["guid"] for row in await bot.rows("delivery")]
    assert stored[:3] == ["small-100", f"small-{60 * KIB}", "first"]
    assert sorted(stored[3:]) == ["second", "third"]


@pytest.mark.parametrize("limits", [{"most_bytes": 200 * KIB}, {"most_bodies": 1}], ids=["bytes", "bodies"])
async def test_a_body_that_finds_no_room_in_time_is_told_to_come_back(bot, limits):
    async with serving(bot, make_app(bot.context, body_budget=BodyBudget(**limits, patience=0.2))) as served:
        reader, writer, rest = await begin(served.url, "with spaces", 180 * KIB, 170 * KIB)
        await arrived(served)
        async with served.http.post(served.url + PATH, data=b"x" * 100 * KIB) as answer:
            assert (answer.status, (await answer.json())["error"]) == (503, "busy")
            assert int(answer.headers["Retry-After"]) > 0
        writer.write(rest)
        assert await status_of(reader) == 400  # a GUID has no spaces; its room is free again
        assert (await converse(served.url, *delivery("next", 100 * KIB)))[0] == 202
        writer.close()


async def test_a_sender_that_hangs_up_gives_its_room_back(bot):
    budget = BodyBudget(most_bytes=100 * KIB, most_bodies=1, patience=5)
    async with serving(bot, make_app(bot.context, body_budget=budget)) as served:
        _, writer, _ = await begin(served.url, "gone", 90 * KIB, 80 * KIB)
        await arrived(served)
        writer.close()
        assert (await converse(served.url, *delivery("next", 90 * KIB)))[0] == 202


async def test_a_refused_body_gives_its_room_back(bot):
    budget = BodyBudget(most_bytes=100 * KIB, most_bodies=1, patience=0.2)
    async with serving(bot, make_app(bot.context, body_budget=budget)) as served:
        for _ in range(3):
            status, answer = await served.send("star", None, body=b"x" * 90 * KIB)
            assert (status, answer["error"]) == (400, "invalid_json")
            status, answer = await served.send("star", None, body=b"x" * 90 * KIB, secret="guessed")
            assert (status, answer["error"]) == (401, "invalid_signature")


@contextlib.asynccontextmanager
async def gated(bot, **limits):
    """The port of the bot behind a gate with these limits."""
    listening = socket.create_server(("127.0.0.1", 0))
    async with answering(make_app(bot.context), listening, ConnectionLimits(**limits)):
        yield listening.getsockname()[1]


@pytest.fixture
async def call():
    """Open a connection and say something on it; all are closed in the end."""
    opened = []

    async def open_and_say(port, said=HEALTHZ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        opened.append(writer)
        writer.write(said)
        return reader, writer

    yield open_and_say
    for writer in opened:
        writer.close()
        await writer.wait_closed()


async def status_of(reader):
    return int((await reader.readline()).split()[1])


async def test_a_connection_too_many_is_told_so_and_there_is_room_again_when_others_leave(bot, call):
    async with gated(bot, connections=2) as port:
        guests = [await call(port) for _ in range(2)]
        assert [await status_of(reader) for reader, _ in guests] == [200, 200]
        reader, _ = await call(port, b"")
        told = await reader.read()
        assert told.startswith(b"HTTP/1.1 503 ")
        head, _, body = told.partition(b"\r\n\r\n")
        assert json.loads(body)["error"] == "busy"
        assert f"Content-Length: {len(body)}".encode() in head
        for _, writer in guests:
            writer.close()
            await writer.wait_closed()
        reader, _ = await call(port)
        assert await status_of(reader) == 200


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\nHost:"], ids=["nothing", "half a head"])
async def test_who_does_not_come_out_with_a_request_is_hung_up_on(bot, call, said):
    async with gated(bot, head=0.1) as port, asyncio.timeout(5):
        reader, _ = await call(port, said)
        assert await reader.read() == b""


async def test_idle_connections_are_kept_until_there_is_a_crowd(bot, call):
    async with gated(bot, connections=6, crowded=0.05) as port, asyncio.timeout(5):
        idle, keep = await call(port)
        await idle.readuntil(b"}")
        other = await call(port)
        await busy_for(0.1, *other)
        keep.write(HEALTHZ)
        assert (await idle.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        await busy_for(0.1, *other)
        for _ in range(2):
            await call(port)
        assert await idle.read() == b""


@pytest.fixture
def stuck():
    """Ask for something on a connection and never read what comes; all are closed in the end."""
    opened = []

    async def ask(port, said):
        one = socket.socket()
        opened.append(one)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        one.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(one, ("127.0.0.1", port))
        await loop.sock_sendall(one, said)

    yield ask
    for one in opened:
        one.close()


STYLE = b"GET /static/style.css HTTP/1.1\r\nHost: x\r\n\r\n"  # 19 KB each
STYLE_AND_BYE = STYLE[:-2] + b"Connection: close\r\n\r\n"
READERS = 40


@pytest.mark.parametrize(
    "said",
    [[STYLE * 500] * READERS, [STYLE * some + STYLE_AND_BYE for some in range(130, 130 + READERS)]],
    ids=["there is more to come", "a little of the last is left"],
)
async def test_who_does_not_read_the_answers_is_hung_up_on(bot, call, stuck, said):
    async with gated(bot, connections=READERS, crowded=60, unread=0.2) as port, asyncio.timeout(10):
        for one in said:
            await stuck(port, one)
        for _ in range(READERS):
            while await status_of((await call(port))[0]) == 503:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.05)


async def test_who_reads_slowly_is_waited_for(bot):
    async with gated(bot, unread=0.2) as port, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=KIB)
        writer.write(STYLE * 300 + STYLE_AND_BYE)
        read = 0
        while some := await reader.read(256 * KIB):
            read += len(some)
            await asyncio.sleep(0.02)
        writer.close()
    assert read > 301 * 18 * KIB


async def busy_for(seconds, reader, writer):
    """Keep a connection in use for that long."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        writer.write(HEALTHZ)
        await reader.readuntil(b"}")
