"""The fast path of webhooks: a delivery of up to 64 KiB that arrives at once is stored without aiohttp.

aiohttp needs more time for a request than verifying and storing a delivery takes. So a connection offers what it has
read here first, and waits a moment for the body if only the head has arrived, as proxies send them one after the other.
Only a complete request, head and body and nothing else, that is written as GitHub and proxies write it and whose
delivery may be stored is taken. Everything else, such as a chunked body, a head in two pieces or a signature that does
not match, or one from which nothing follows, is read and answered by aiohttp and `senders.make_receiver` as usual.
"""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from typing import TYPE_CHECKING

import msgspec

from bot.core import metrics, traces
from bot.core.errors import Rejected
from bot.core.log_output import REQUEST
from bot.ingest.senders import acknowledge, all_senders
from bot.web import middleware
from bot.web.app_keys import CONTEXT
from bot.web.bodies import SMALL

if TYPE_CHECKING:
    import asyncio

    from aiohttp import web

    from bot.ingest.inbox import Incoming
    from bot.ingest.senders import Sender

HEADER = rb"\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}: [\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?"
HEAD = re.compile(rb"POST [!-~]+ HTTP/1\.1(?:" + HEADER + rb"){1,100}")
START_MOST = 60  # bytes of the method and the path
HEAD_MOST = 8_000  # bytes of a head; aiohttp refuses longer lines
LENGTH = re.compile(rb"\r\ncontent-length: ([1-9][0-9]{0,4})\r\n", re.IGNORECASE)
# headers that change how the body is read, or what follows the answer
SPECIAL = frozenset({"transfer-encoding", "content-encoding", "expect", "upgrade", "trailer"})
STATUS = {202: b"202 Accepted", 500: b"500 Internal Server Error", 503: b"503 Service Unavailable"}

ANSWER = (
    b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %b\r\nX-Request-Id: %b\r\n"
    b"%b\r\n%b"
)


class FastPath:
    """Stores deliveries for one application; called with what a connection has read between two requests."""

    def __init__(self, app: web.Application) -> None:
        self._app = app
        self._context = app[CONTEXT]
        self._senders = {f"POST {one.path} ".encode(): one for one in all_senders(self._context.features)}
        self._date = (0, b"")  # a second, and the value of the header Date then

    def __call__(self, data: bytes) -> PendingDelivery | None:
        """Store the delivery if `data` is one complete request; otherwise return None."""
        sender = self._sender(data)
        if sender is None or len(data) > SMALL or traces.enabled():
            return None
        started = time.perf_counter()
        head, _, body = data.partition(b"\r\n\r\n")
        if len(head) > HEAD_MOST or not HEAD.fullmatch(head):
            return None
        headers = _parse_headers(head)
        if headers is None or headers.get("content-length") != str(len(body)) or not _is_plain(headers):
            return None
        try:
            incoming = sender.admit(headers, body, self._context)
        except Rejected:
            return None
        if "ignored" in incoming:
            return None
        metrics.READ_BY_FAST_PATH.inc()
        return PendingDelivery(self, sender, incoming, self._context.intake.put(incoming), started)

    def is_incomplete(self, data: bytes) -> bool:
        """Return whether `data` starts with the head of a small delivery, and a part of its body is missing."""
        if self._sender(data) is None or traces.enabled():
            return False
        end = data.find(b"\r\n\r\n")
        length = LENGTH.search(data, 0, end + 2) if end >= 0 else None
        return length is not None and len(data) < end + 4 + int(length[1]) <= SMALL

    def answer(self, pending: PendingDelivery) -> bytes:
        """Return the answer to a delivery that was stored, or could not be."""
        status, body, headers = self._outcome(pending)
        metrics.count_request("webhooks", status, time.perf_counter() - pending.started)
        guid = pending.incoming["guid"].encode()
        return ANSWER % (STATUS[status], len(body), self._date_header(), guid, headers, body)

    def _outcome(self, pending: PendingDelivery) -> tuple[int, bytes, bytes]:
        """Return status, body and further headers."""
        error = pending.stored.exception()
        if error is None:
            return 202, acknowledge(pending.sender, pending.incoming, new=pending.stored.result()), b""
        named = REQUEST.set((pending.incoming["guid"], pending.sender.path))
        try:
            refusal = middleware.failure(self._app, error)
        finally:
            REQUEST.reset(named)
        headers = "".join(f"{name}: {value}\r\n" for name, value in refusal.headers.items())
        return refusal.status, msgspec.json.encode(middleware.refusal_body(refusal)), headers.encode()

    def _sender(self, data: bytes) -> Sender | None:
        """Return the sender that delivers at the address of a request, None where it is no delivery."""
        end = data.find(b" ", len(b"POST "), START_MOST) + 1
        return self._senders.get(data[:end])

    def _date_header(self) -> bytes:
        second = int(time.time())
        if second != self._date[0]:
            self._date = (second, formatdate(second, usegmt=True).encode())
        return self._date[1]


class PendingDelivery:
    """A delivery that is being stored; it is answered once `stored` is done."""

    __slots__ = ("_path", "incoming", "sender", "started", "stored")

    def __init__(
        self,
        path: FastPath,
        sender: Sender,
        incoming: Incoming,
        stored: asyncio.Future[bool],
        started: float,
    ) -> None:
        self._path = path
        self.sender = sender
        self.incoming = incoming
        self.stored = stored
        self.started = started  # seconds of the performance counter

    def answer(self) -> bytes:
        """Return the answer, once `stored` is done."""
        return self._path.answer(self)


def _is_plain(headers: dict[str, str]) -> bool:
    """Return whether nothing in these headers needs aiohttp, which refuses a request without Host."""
    keeps = headers.get("connection", "keep-alive").lower() == "keep-alive"
    return keeps and "host" in headers and not SPECIAL & headers.keys()


def _parse_headers(head: bytes) -> dict[str, str] | None:
    """Return the headers by their names in lower case; None if a name occurs twice."""
    lines = head.decode("ascii").split("\r\n")[1:]
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return headers if len(headers) == len(lines) else None
