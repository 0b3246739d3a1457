"""What may strangers take of the bot at once? A number of connections, and little time."""

import asyncio
import contextlib
import json
import socket

import pytest

from bot.app import make_app
from bot.serving import answering_requests
from bot.web.connections import ConnectionLimits
from tests.process import PATIENCE
from tests.serving import SQLITE

HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
KIB = 1024
pytestmark = SQLITE


@contextlib.asynccontextmanager
async def gated(bot, **limits):
    """The port of the bot behind a gate with these limits."""
    listening = socket.create_server(("127.0.0.1", 0))
    async with answering_requests(make_app(bot.context), listening, ConnectionLimits(**limits)):
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
    async with gated(bot, head=0.1) as port, asyncio.timeout(PATIENCE):
        reader, _ = await call(port, said)
        assert await reader.read() == b""


async def test_idle_connections_are_kept_until_there_is_a_crowd(bot, call):
    async with gated(bot, connections=6, crowded=0.05) as port, asyncio.timeout(PATIENCE):
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
    async with gated(bot, connections=READERS, crowded=60, unread=0.2) as port, asyncio.timeout(PATIENCE):
        for one in said:
            await stuck(port, one)
        for _ in range(READERS):
            while await status_of((await call(port))[0]) == 503:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.05)


async def test_who_reads_slowly_is_waited_for(bot):
    async with gated(bot, unread=1.0) as port, asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=KIB)
        writer.write(STYLE * 300 + STYLE_AND_BYE)
        read = 0
        while some := await reader.read(256 * KIB):
            read += len(some)
            await asyncio.sleep(0.06)
        writer.close()
    assert read > 301 * 18 * KIB


async def busy_for(seconds, reader, writer):
    """Keep a connection in use for that long."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        writer.write(HEALTHZ)
        await reader.readuntil(b"}")
