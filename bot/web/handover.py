"""Passing a connection to the process that answers its next request."""

from __future__ import annotations

import asyncio
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bot.web.connections import ConnectionFactory

LISTENER, WORKER, PAGES = "listener", "worker", "pages"  # the processes
CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # what is received is no child's, where the system can
MOST = 64 * 1024  # bytes of a request that are passed on with its connection
BUFFER = 4 * 1024 * 1024  # bytes of connections on their way
LINE_MOST = 8_190  # bytes of a first line; aiohttp refuses longer ones
DELIVERIES = re.compile(r"/api/[a-z]+/webhooks(?:/|$)")  # of any sender
OPERATORS = ("/healthz", "/readyz", "/metrics")
TARGET = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*)?([^?#]*)"
)  # also with scheme and host, as a proxy gets it
READS = frozenset({"GET", "HEAD"})
# the first byte of a message: a connection, there is work, the process answers, what keeps others from the database
CONNECTION, WAKE, READY, LOCK = b"C", b"W", b"R", b"L"


@dataclass(frozen=True, kw_only=True)
class Message:
    """What another process sent."""

    kind: bytes
    data: bytes
    descriptor: int | None


def choose_process(method: str, target: str) -> str:
    """Return the process that answers a request."""
    match = TARGET.match(target)
    path = match[1] if match else target
    if method not in READS:  # it writes
        return LISTENER if is_delivery(path) else WORKER
    return LISTENER if path in OPERATORS else PAGES


def is_delivery(path: str) -> bool:
    """Whether deliveries come in at this address, GitHub's or another sender's."""
    return DELIVERIES.match(path) is not None


def process_of(data: bytes) -> str | None:
    """Return the process that answers the request that starts with `data`; None where no first line is complete."""
    line, end, _ = data.lstrip(b"\r\n").partition(b"\n")
    words = line.split() if end else []
    if len(words) < 2:  # aiohttp refuses it, wherever that is
        return None
    return choose_process(words[0].decode("latin-1"), words[1].decode("utf-8", "surrogateescape"))


def is_incomplete(data: bytes) -> bool:
    """Return whether the first line of a request may still be completed."""
    return len(data) <= LINE_MOST and b"\n" not in data.lstrip(b"\r\n")


class Channel:
    """This process's end of the socket to another one."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)

    def send(self, kind: bytes, data: bytes = b"", descriptor: int | None = None) -> bool:
        """Send a message; return False if the other process is gone or does not read."""
        try:
            socket.send_fds(self._socket, [kind + data], [] if descriptor is None else [descriptor])
        except OSError:
            return False
        return True

    def hand_over(self, transport: asyncio.WriteTransport, data: bytes) -> bool:
        """Pass a connection on with what was read of it; return False if it stays."""
        if len(data) > MOST or not self.send(CONNECTION, data, transport.get_extra_info("socket").fileno()):
            return False
        transport.abort()  # closes our descriptor: the other process has its own
        return True

    def received(self) -> Iterator[Message]:
        """Yield every message that is there; raises EOFError once the other process is gone."""
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, MOST + 1, 1, CLOSE_ON_EXEC)
            except BlockingIOError:
                return
            except OSError as error:
                raise EOFError from error
            if not data:
                raise EOFError
            yield Message(kind=data[:1], data=data[1:], descriptor=descriptors[0] if descriptors else None)

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close it: the other process notices."""
        self._socket.close()


class Router:
    """Says where a connection goes next; `channels` are those to other processes, by name."""

    def __init__(self, own: str) -> None:
        self._own = own
        self.channels: dict[str, Channel] = {}

    def hand_over(self, transport: asyncio.WriteTransport, data: bytes) -> bool:
        """Pass a connection on if another process answers its next request; return False if it stays."""
        channel = self._channel(process_of(data))
        return channel is not None and channel.hand_over(transport, data)

    def is_misdirected(self, method: str, target: str) -> bool:
        """Return whether another process would have been passed this request, had it come first on a connection."""
        return self._channel(choose_process(method, target)) is not None

    def _channel(self, name: str | None) -> Channel | None:
        """Return the channel to a process; the listener has channels to all, the others have one to the listener."""
        if name is None or name == self._own:
            return None
        return self.channels.get(name) or self.channels.get(LISTENER)

    def forward(self, connection: socket.socket, data: bytes) -> bool:
        """Pass on a connection that came from another process; return False if it stays."""
        channel = self.channels.get(process_of(data) or "")
        if channel is None or not channel.send(CONNECTION, data, connection.fileno()):
            return False
        connection.close()
        return True


async def adopt(connection: socket.socket, data: bytes, factory: ConnectionFactory) -> None:
    """Serve a connection that another process began to read."""
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_accepted_socket(lambda: factory(data), connection)
    except OSError:  # its client has gone
        connection.close()
