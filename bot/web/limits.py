"""How much may strangers make us hold at once? Room for bodies being read and handled, a gate for connections.

A body's first 64 KiB need no room: there are at most as many of them as connections, and so a small delivery never
waits behind a large one. What is larger waits, in the order it came, for a seat and for its whole length.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import structlog
from aiohttp import web

from bot.errors import Rejected

SMALL = 64 * 1024  # bytes of a body that need no room
MOST_BYTES = 128 * 1024 * 1024  # of larger bodies, from their reading to their answer
MOST_BODIES = 64  # larger ones at once
PATIENCE = 10.0  # seconds a body waits for room; GitHub waits no longer for an answer

MOST_CONNECTIONS = 2_000
FILES = 200  # what else may be open: the database's files and its connections, calls to GitHub
CROWD = 0.5  # of the connections there may be: from there on idle ones are closed soon
KEEPALIVE = 75.0  # seconds an idle connection is kept; proxies commonly let go of it after 60
SHORT_KEEPALIVE = 5.0  # seconds, in a crowd
HEAD_SECONDS = 10.0  # until the first request's head is there
CONNECTION: dict[str, Any] = {
    "access_log": None,
    "auto_decompress": False,
    "keepalive_timeout": KEEPALIVE,
    "lingering_time": 2.0,  # seconds to let a refused body run out, so that its sender reads why
    "read_bufsize": SMALL // 2,  # bytes; aiohttp stops reading at twice as many
}
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Retry-After: 5\r\nContent-Length: 84\r\n\r\n"
    b'{"ok":false,"error":"busy","detail":"too many connections are open: come back soon"}'
)

log = structlog.get_logger("bot.web")


class Room:
    """What larger bodies may take of memory, from their first bytes to their answer."""

    def __init__(
        self, *, most_bytes: int = MOST_BYTES, most_bodies: int = MOST_BODIES, patience: float = PATIENCE
    ) -> None:
        self._bytes = most_bytes  # left
        self._bodies = most_bodies  # left
        self._patience = patience
        self._turn = asyncio.Lock()  # first come, first served
        self._left = asyncio.Event()  # set when a body leaves

    async def enter(self, request: web.Request, size: int) -> None:
        """Return when there is room for a body of that many bytes; raises Rejected 503 if that takes too long.

        The room is the request's until its answer is made (`leave`).
        """
        try:
            async with asyncio.timeout(self._patience), self._turn:
                while self._bytes < size or not self._bodies:
                    self._left.clear()
                    await self._left.wait()
                self._bytes -= size
                self._bodies -= 1
                request[TAKEN] = size
        except TimeoutError:
            detail = "too many large bodies are being read at once: send it again in a while"
            raise Rejected(
                503, "busy", detail, headers={"Retry-After": "10", "Connection": "close"}
            ) from None

    def leave(self, request: web.Request) -> None:
        """Give back the room a request has."""
        self._bytes += request[TAKEN]
        self._bodies += 1
        self._left.set()


class Connection(web.RequestHandler):
    """A connection that knows how long it has been waiting for its sender."""

    __slots__ = ("_head_due",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the sender some seconds to ask for something."""
        super().connection_made(transport)
        self._head_due = self._loop.call_later(HEAD_SECONDS, self._close_unless_asked)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget about it."""
        self._head_due.cancel()
        super().connection_lost(exc)

    def idle_for(self, now: float) -> float:
        """Return for how many seconds no whole head of a request has come; 0 while a request is being served."""
        waiting = self._waiter is not None and not self._waiter.done()
        return now - self._next_keepalive_close_time + KEEPALIVE if waiting else 0.0

    def _close_unless_asked(self) -> None:
        if not self._request_count:
            self.force_close()


class TurnedAway(asyncio.Protocol):
    """A connection too many: told so, and closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say it without waiting for the request."""
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(FULL)
        transport.close()


class Gate:
    """Makes the protocol of each new connection: the factory a listening socket wants."""

    def __init__(self, server: web.Server, *, most: int | None = None) -> None:
        self._server = server
        self._most = most or most_connections()
        self._next_look = 0.0

    def __call__(self) -> asyncio.BaseProtocol:
        """Return what is to talk on one more connection."""
        loop = asyncio.get_running_loop()
        count = len(self._server.connections)
        if count >= self._most * CROWD and loop.time() >= self._next_look:
            self._next_look = loop.time() + 1
            self._close_idle(loop.time())
        if count >= self._most:
            log.warning("turned away", connections=count)
            return TurnedAway()
        return Connection(self._server, loop=loop, **CONNECTION)

    def _close_idle(self, now: float) -> None:
        for connection in self._server.connections:
            if isinstance(connection, Connection) and connection.idle_for(now) >= SHORT_KEEPALIVE:
                connection.force_close()


def most_connections() -> int:
    """Return how many connections may be open: fewer than there may be open files."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource  # noqa: PLC0415 - not on Windows

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MOST_CONNECTIONS, max(soft - FILES, FILES)) if soft >= 0 else MOST_CONNECTIONS


ROOM: web.AppKey[Room] = web.AppKey("room", Room)
TAKEN: web.RequestKey[int] = web.RequestKey("taken", int)
