"""The fast path of webhooks: a delivery that came in one piece is stored without aiohttp's handling of a request.

aiohttp needs more time for a request than verifying and storing a delivery takes. So a connection offers what it has
read here first. Only a whole request, head and body and nothing else, that is written as GitHub writes them and whose
delivery may be stored is taken. Everything else, such as a chunked body, a head in two pieces or a signature that does
not match, is read and refused by aiohttp and `webhooks.receive` as ever.
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
from bot.ingest import webhooks
from bot.web import middleware
from bot.web.app_keys import CONTEXT
from bot.web.bodies import SMALL

if TYPE_CHECKING:
    import asyncio

    from aiohttp import web

    from bot.ingest.inbox import Incoming

PATH = "/api/github/webhooks"
HEADER = rb"\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}: [\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?"
START = f"POST {PATH} ".encode()
HEAD = re.compile(START + rb"HTTP/1\.1(?:" + HEADER + rb"){1,100}")
LONGEST = 8_000  # bytes of a head; aiohttp refuses longer lines
# headers that change how the body is read, or what follows the answer
SPECIAL = frozenset({"transfer-encoding", "content-encoding", "expect", "upgrade", "trailer"})
STATUS = {202: b"202 Accepted", 500: b"500 Internal Server Error", 503: b"503 Service Unavailable"}

ANSWER = (
    b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %b\r\nX-Request-Id: %b\r\n"
    b"%b\r\n%b"
)


class FastPath:
    """Takes deliveries for one application; called with what a connection has read between two requests."""

    def __init__(self, app: web.Application) -> None:
        self._app = app
        self._context = app[CONTEXT]
        self._date = (0, b"")  # a second, and how a header tells it

    def __call__(self, data: bytes) -> Taken | None:
        """Begin to store the delivery that these bytes are; None where aiohttp has to look at them."""
        if not data.startswith(START) or len(data) > SMALL or traces.enabled():
            return None
        began = time.perf_counter()
        head, _, body = data.partition(b"\r\n\r\n")
        if len(head) > LONGEST or not HEAD.fullmatch(head):
            return None
        headers = _headers(head)
        if headers is None or headers.get("content-length") != str(len(body)) or SPECIAL & headers.keys():
            return None
        if headers.get("connection", "keep-alive").lower() != "keep-alive":
            return None
        try:
            incoming = webhooks.admit(headers, body, self._context.settings)
        except Rejected:
            return None
        return Taken(self, incoming, self._context.intake.put(incoming), began)

    def answer(self, taken: Taken) -> bytes:
        """Return the answer to a delivery that was stored, or could not be."""
        status, body, more = self._outcome(taken)
        metrics.count_request("webhooks", status, time.perf_counter() - taken.began)
        return ANSWER % (STATUS[status], len(body), self._now(), taken.incoming.guid.encode(), more, body)

    def _outcome(self, taken: Taken) -> tuple[int, bytes, bytes]:
        """Return status, body and further headers."""
        error = taken.stored.exception()
        if error is None:
            new = taken.stored.result()
            (metrics.STORED if new else metrics.DUPLICATES).inc()
            return 202, webhooks.acknowledgement(taken.incoming.guid, new=new), b""
        named = REQUEST.set((taken.incoming.guid, PATH))
        try:
            refusal = middleware.failure(self._app, error)
        finally:
            REQUEST.reset(named)
        headers = "".join(f"{name}: {value}\r\n" for name, value in refusal.headers.items())
        return refusal.status, msgspec.json.encode(middleware.refusal_body(refusal)), headers.encode()

    def _now(self) -> bytes:
        second = int(time.time())
        if second != self._date[0]:
            self._date = (second, formatdate(second, usegmt=True).encode())
        return self._date[1]


class Taken:
    """A delivery that is being stored."""

    __slots__ = ("_path", "began", "incoming", "stored")

    def __init__(
        self, path: FastPath, incoming: Incoming, stored: asyncio.Future[bool], began: float
    ) -> None:
        self._path = path
        self.incoming = incoming
        self.stored = stored
        self.began = began  # of the performance counter, in seconds

    def answer(self) -> bytes:
        """Return the answer, once `stored` is done."""
        return self._path.answer(self)


def _headers(head: bytes) -> dict[str, str] | None:
    """Return the headers by their names in lower case; None where one is there twice."""
    lines = head.decode("ascii").split("\r\n")[1:]
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return headers if len(headers) == len(lines) else None
