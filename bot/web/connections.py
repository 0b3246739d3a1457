"""Limits on connections: how many may be open, for how long idle ones are kept, and how slowly answers may be read."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import structlog
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from bot.web import handover

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import StreamReader

    from bot.web.handover import Router

HOLD = 0.5  # seconds to wait for the rest of a request on the fast path; then aiohttp reads it
READ_BUFFER = 32 * 1024  # bytes; aiohttp stops reading at twice as many
LEAST_READ = 16 * 1024  # bytes of an answer to be read within `ConnectionLimits.unread` seconds
FILES = 200  # other files that may be open: the database's files and its connections, calls to GitHub
OPTIONS: dict[str, Any] = {
    "access_log": None,
    "auto_decompress": False,
    "lingering_time": 2.0,  # seconds a refused body may go on arriving, so that its sender reads the reason
    "read_bufsize": READ_BUFFER,
}
CONTINUE = "100-continue"
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Retry-After: 5\r\nContent-Length: 84\r\n\r\n"
    b'{"ok":false,"error":"busy","detail":"too many connections are open: come back soon"}'
)

log = structlog.get_logger("bot.web")


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """The greatest number of connections, and the seconds after which one is closed."""

    connections: int = 2_000
    head: float = 10.0  # until the head of the first request is complete
    keepalive: float = 75.0  # idle; proxies commonly close a connection after 60
    crowded: float = 5.0  # idle, once half the permitted connections are open
    unread: float = 30.0  # an answer, or a good part of it, is left unread


class PendingAnswer(Protocol):
    """A request on the fast path that is not answered yet."""

    @property
    def stored(self) -> asyncio.Future[bool]:
        """Done when there is an answer."""

    def answer(self) -> bytes:
        """Return the whole answer."""


class FastPath(Protocol):
    """Processes complete requests without aiohttp."""

    def __call__(self, data: bytes) -> PendingAnswer | None:
        """Process what was read between two requests; return None if aiohttp has to."""

    def is_incomplete(self, data: bytes) -> bool:
        """Return whether `data` is the start of a request that `__call__` would process if it were complete."""


class ConnectionRefused(asyncio.Protocol):
    """A connection beyond the limit: answered 503 and closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answer without waiting for the request."""
        writer = cast("asyncio.WriteTransport", transport)
        writer.write(BUSY)
        writer.close()


class Connection(web.RequestHandler):
    """A connection that knows how long it has been idle, and is aborted when its answers are not read.

    Until aiohttp has served a request on it, complete requests may take the fast path.

    Uses only public methods of aiohttp: `request_factory` is called for each request, `finish_response` ends it.
    """

    __slots__ = (
        "_fast_path",
        "_first",
        "_head_timer",
        "_held",
        "_hold_timer",
        "_idle_since",
        "_idle_timer",
        "_limits",
        "_lost",
        "_offered",
        "_payload",
        "_pending",
        "_pipelined",
        "_reader",
        "_reading",
        "_router",
        "_seen",
        "_timers",
        "_unread",
        "_unread_timer",
        "_writer",
        "misdirected",
    )

    def __init__(
        self,
        server: web.Server,
        *,
        limits: ConnectionLimits,
        router: Router | None = None,
        fast_path: FastPath | None = None,
        first: bytes = b"",
    ) -> None:
        self._timers = asyncio.get_running_loop()
        super().__init__(server, loop=self._timers, keepalive_timeout=limits.keepalive, **OPTIONS)
        self._limits = limits
        self._idle_since: float | None = self._timers.time()  # None while a request is being served
        self._seen = self._lost = False
        self._router = router  # to other processes
        self._fast_path = fast_path
        self._pending: PendingAnswer | None = None  # on the fast path
        self._held = b""  # the start of a request whose rest is missing
        self._hold_timer: asyncio.TimerHandle | None = None
        self._pipelined = b""  # received before that was answered
        self._idle_timer: asyncio.TimerHandle | None = None  # as long as aiohttp has none
        self._first = first  # what another process has read of it
        self._reading = False  # a request of which something has come
        self._payload: StreamReader | None = None  # the body of the last request
        self._offered = bool(first)  # the next request was offered to the other processes
        self.misdirected = False  # the last one was not, since it came behind another, and is theirs

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Limit the time until the first request."""
        self._writer = cast("asyncio.WriteTransport", transport)
        self._reader = cast("asyncio.ReadTransport", transport)
        self._unread_timer: asyncio.TimerHandle | None = None
        self._head_timer = self._timers.call_later(self._limits.head, self._close_without_request)
        super().connection_made(transport)
        if self._first:
            first, self._first = self._first, b""
            if not self._take_fast_path(first):
                self._leave_to_aiohttp(first)

    def data_received(self, data: bytes) -> None:
        """Process what was received; if it starts a request for another process, pass the connection on.

        If a client pipelines requests, the middle of one may be mistaken for the start of another. This affects nothing
        but its own connection.
        """
        if self._pending is not None:
            self._pipelined += data
            self._reader.pause_reading()
            return
        if not self._reading:
            data = self._release() + data
            if self._take_fast_path(data):
                return
            if self._router is not None and handover.is_incomplete(data):
                self._held = data  # until the timer of a connection without a request closes it
                return
            if self._router is not None and self._router.hand_over(self._writer, data):
                return
            self._offered = True
        self._leave_to_aiohttp(data)

    def _leave_to_aiohttp(self, data: bytes) -> None:
        self._reading = True
        self._fast_path = None  # aiohttp would not know of such a request, and close the connection as idle
        super().data_received(data)

    def _take_fast_path(self, data: bytes) -> bool:
        """Start the fast path for what was read; return False if aiohttp has to process it."""
        if self._fast_path is None:
            return False
        self._pending = pending = self._fast_path(data)
        if pending is not None:
            self._seen, self._idle_since = True, None
            pending.stored.add_done_callback(self._answer)
            return True
        if self._fast_path.is_incomplete(data):
            self._held, self._idle_since = data, None
            self._hold_timer = self._timers.call_later(HOLD, self._stop_holding)
            return True
        return False

    def _release(self) -> bytes:
        """Return what was held."""
        held, self._held = self._held, b""
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None
        return held

    def _stop_holding(self) -> None:
        self._leave_to_aiohttp(self._release())

    def _answer(self, _stored: asyncio.Future[bool]) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        answer = pending.answer()  # counts it, read or not
        self._idle_since = self._timers.time()
        if self._lost:
            return
        self._writer.write(answer)
        if self._idle_timer is None:
            self._close_when_idle()
        if self._pipelined:
            data, self._pipelined = self._pipelined, b""
            self._reader.resume_reading()
            if not self._take_fast_path(data):  # not passed on, which would drop what is still to be sent
                self._leave_to_aiohttp(data)

    def _close_when_idle(self) -> None:
        """Close the connection once it has been idle for too long, unless aiohttp does so."""
        left = self._limits.keepalive - self.idle_for()
        self._idle_timer = None
        if self._fast_path is None:
            return
        if left <= 0:
            self.force_close()
        else:
            self._idle_timer = self._timers.call_later(left, self._close_when_idle)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timers."""
        self._lost = True
        self._head_timer.cancel()
        self._release()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._watch_reader(None)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Limit the time an answer may wait for its reader."""
        super().pause_writing()
        self._watch_reader(self._limits.unread)

    def resume_writing(self) -> None:
        """Lift that limit: almost everything was read."""
        super().resume_writing()
        self._watch_reader(None)

    async def start(self) -> None:
        """Answer until there is nothing more to answer; what is still unread then is not kept for ever, either."""
        try:
            await super().start()
        finally:
            if not self._lost:
                self._watch_reader(self._limits.unread)

    def request_began(self, message: Any, payload: StreamReader) -> None:
        """Note that a request with this body is being served."""
        self._seen, self._idle_since = True, None
        self._payload = payload
        router = self._router
        self.misdirected = (
            router is not None and not self._offered and router.is_misdirected(message.method, message.path)
        )
        self._offered = False

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer, then note that the connection is idle."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._idle_since = self._timers.time()
            self._reading = self._payload is not None and not self._payload.is_eof()

    def idle_for(self) -> float:
        """Return the seconds since the last request was answered; 0 while one is being served."""
        return 0.0 if self._idle_since is None else self._timers.time() - self._idle_since

    def _close_without_request(self) -> None:
        if not self._seen:
            self.force_close()

    def _watch_reader(self, seconds: float | None) -> None:
        """Check after so many seconds whether the answer is being read; None stops checking."""
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        self._unread = self._writer.get_write_buffer_size() if seconds else 0
        self._unread_timer = self._timers.call_later(seconds, self._abort_unless_read) if seconds else None

    def _abort_unless_read(self) -> None:
        if self._writer.get_write_buffer_size() > self._unread - LEAST_READ:
            self._writer.abort()
        else:
            self._watch_reader(self._limits.unread)


class ConnectionFactory:
    """Makes the protocol of each new connection, for `loop.create_server`."""

    def __init__(
        self,
        server: web.Server,
        limits: ConnectionLimits,
        router: Router | None = None,
        fast_path: FastPath | None = None,
    ) -> None:
        server.request_factory = _noting(server.request_factory)
        self._server = server
        self._limits = limits
        self._router = router
        self._fast_path = fast_path
        self._next_warning = 0.0

    def __call__(self, first: bytes = b"") -> asyncio.BaseProtocol:
        """Return the protocol of one more connection, of which `first` was read already.

        Closes idle ones first where many are open.
        """
        count, now = len(self._server.connections), asyncio.get_running_loop().time()
        if count * 2 >= self._limits.connections and now >= self._next_warning:
            self._next_warning = now + self._limits.crowded / 5
            log.warning("many connections", open=count, most=self._limits.connections)
            self._close_idle()
        if count >= self._limits.connections:
            return ConnectionRefused()
        return Connection(
            self._server,
            limits=self._limits,
            router=self._router,
            fast_path=self._fast_path,
            first=first,
        )

    def _close_idle(self) -> None:
        for connection in self._server.connections:
            if isinstance(connection, Connection) and connection.idle_for() >= self._limits.crowded:
                connection.force_close()


def most_connections() -> int:
    """Return how many connections there may be: fewer than files may be open, after raising that limit."""
    if sys.platform == "win32":
        return ConnectionLimits.connections
    import resource  # noqa: PLC0415 - not on Windows

    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != most:
        with contextlib.suppress(ValueError, OSError):  # some systems have a limit that they do not name
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            files = most
    return (
        ConnectionLimits.connections
        if files < 0
        else max(min(ConnectionLimits.connections, files - FILES), FILES)
    )


def _noting(make: Callable[..., web.BaseRequest]) -> Callable[..., web.BaseRequest]:
    """Return aiohttp's factory of requests, which tells the connection that one began.

    It forgets unknown expectations: aiohttp would repeat them in an answer that cannot always be encoded.
    """

    def made(message: Any, payload: Any, protocol: web.RequestHandler, *rest: Any) -> web.BaseRequest:
        if isinstance(protocol, Connection):
            protocol.request_began(message, payload)
        if message.headers.get("Expect", CONTINUE).lower() != CONTINUE:
            kept = CIMultiDict(pair for pair in message.headers.items() if pair[0].lower() != "expect")
            message = message._replace(headers=CIMultiDictProxy(kept))
        return make(message, payload, protocol, *rest)

    return made
