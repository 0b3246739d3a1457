"""How much may strangers make us hold at once? Room for bodies being read and handled, a gate for connections.

An answer is held until it is read: whoever does not go on reading is hung up on.

A body's first 64 KiB need no room: there are at most as many of them as connections, and so a small delivery never
waits behind a large one. What is larger waits, in the order it came, for a seat and for its whole length.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from typing import Any, cast

import structlog
from aiohttp import web

from bot.errors import Rejected

SMALL = 64 * 1024  # bytes of a body that need no room
MOST_BYTES = 128 * 1024 * 1024  # of larger bodies, from their reading to their answer
MOST_BODIES = 64  # larger ones at once
PATIENCE = 20.0  # seconds a body waits for room

LEAST_READ = 16 * 1024  # bytes of an answer that are read in `Limits.unread` seconds, or nobody reads it

FILES = 200  # what else may be open: the database's files and its connections, calls to GitHub
CONNECTION: dict[str, Any] = {
    "access_log": None,
    "auto_decompress": False,
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


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How many connections there may be, and for how many seconds an idle one is kept."""

    connections: int = 2_000
    head: float = 10.0  # until a first request's head is there
    keepalive: float = 75.0  # proxies commonly let go of a connection after 60
    crowded: float = 5.0  # once half the connections there may be are open
    unread: float = 30.0  # an answer, or a good part of it, may wait for its reader


class Connection(web.RequestHandler):
    """A connection that knows how long it has been waiting for its sender, and for who should read its answers."""

    __slots__ = ("_head_due", "_limits", "_talking", "_unread", "_unread_due")

    def __init__(self, server: web.Server, *, limits: Limits) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, keepalive_timeout=limits.keepalive, **CONNECTION)
        self._limits = limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the sender some seconds to ask for something."""
        super().connection_made(transport)
        self._talking = cast("asyncio.WriteTransport", transport)
        self._unread_due: asyncio.TimerHandle | None = None
        self._head_due = self._loop.call_later(self._limits.head, self._close_unless_asked)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget about it."""
        self._head_due.cancel()
        self._look_again(None)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that an answer waits for its reader."""
        super().pause_writing()
        self._look_again(self._limits.unread)

    def resume_writing(self) -> None:
        """Note that it was read, but for a little."""
        super().resume_writing()
        self._look_again(None)

    async def start(self) -> None:
        """Answer until there is nothing more to answer; what is left to be read then is not held for ever either."""
        try:
            await super().start()
        finally:
            if self._manager is not None:  # else it is lost already
                self._look_again(self._limits.unread)

    def idle_for(self) -> float:
        """Return for how many seconds no whole head of a request has come; 0 while a request is being served."""
        if self._waiter is None or self._waiter.done():
            return 0.0
        return self._loop.time() - self._next_keepalive_close_time + self._limits.keepalive

    def _close_unless_asked(self) -> None:
        if not self._request_count:
            self.force_close()

    def _look_again(self, seconds: float | None) -> None:
        """See in so many seconds whether anybody goes on reading; None: nobody has to."""
        if self._unread_due is not None:
            self._unread_due.cancel()
        self._unread = self._talking.get_write_buffer_size() if seconds else 0
        self._unread_due = self._loop.call_later(seconds, self._hang_up_unless_read) if seconds else None

    def _hang_up_unless_read(self) -> None:
        if self._talking.get_write_buffer_size() > self._unread - LEAST_READ:
            self._talking.abort()
        else:
            self._look_again(self._limits.unread)


class TurnedAway(asyncio.Protocol):
    """A connection too many: told so, and closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say it without waiting for the request."""
        talking = cast("asyncio.WriteTransport", transport)
        talking.write(FULL)
        talking.close()


class Gate:
    """Makes the protocol of each new connection: the factory a listening socket wants."""

    def __init__(self, server: web.Server, limits: Limits) -> None:
        self._server = server
        self._limits = limits
        self._next_look = 0.0

    def __call__(self) -> asyncio.BaseProtocol:
        """Return what is to talk on one more connection."""
        count, now = len(self._server.connections), asyncio.get_running_loop().time()
        if count * 2 >= self._limits.connections and now >= self._next_look:
            self._next_look = now + self._limits.crowded / 5
            log.warning("many connections", open=count, most=self._limits.connections)
            self._close_idle()
        if count >= self._limits.connections:
            return TurnedAway()
        return Connection(self._server, limits=self._limits)

    def _close_idle(self) -> None:
        for connection in self._server.connections:
            if isinstance(connection, Connection) and connection.idle_for() >= self._limits.crowded:
                connection.force_close()


def most_connections() -> int:
    """Return how many connections there may be: fewer than there may be open files, of which we take all we may."""
    if sys.platform == "win32":
        return Limits.connections
    import resource  # noqa: PLC0415 - not on Windows

    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != most:
        with contextlib.suppress(ValueError, OSError):  # some systems have a limit that they do not name
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            files = most
    return Limits.connections if files < 0 else max(min(Limits.connections, files - FILES), FILES)


ROOM: web.AppKey[Room] = web.AppKey("room", Room)
TAKEN: web.RequestKey[int] = web.RequestKey("taken", int)
