"""Webhooks: who delivers where, which deliveries are GitHub's, and what is stored of them.

A small delivery that arrives at once is stored without aiohttp: see `FastPath`.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web
from msgspec import UNSET, UnsetType

from bot.core import metrics, traces
from bot.core.errors import Rejected
from bot.core.feature import load_each
from bot.core.json_fields import as_int, as_text, clean
from bot.core.log_output import REQUEST
from bot.ingest.inbox import Incoming
from bot.web import server
from bot.web.access import CONTEXT
from bot.web.addresses import IDENTIFIER
from bot.web.answers import Answer, Yes
from bot.web.bodies import LARGE, SMALL, decode_object, read_body, require_utf8
from bot.web.limits import IGNORED_LIMITER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aiohttp.typedefs import Handler

    from bot.context import Context
    from bot.core.feature import Features
    from bot.core.settings import Settings

BODY_LIMIT = 25 * 1024 * 1024  # bytes; GitHub sends nothing larger
EVENT_NAME = re.compile(r"[a-z0-9_]{1,60}")
TARGET_HEADER = "x-github-hook-installation-target-id"
KEPT_HEADERS = {
    name.lower(): name
    for name in (
        "X-GitHub-Event", "X-GitHub-Delivery", "X-GitHub-Hook-ID", "X-GitHub-Hook-Installation-Target-ID",
        "X-GitHub-Hook-Installation-Target-Type", "X-GitHub-Enterprise-Host", "X-GitHub-Enterprise-Version",
        "User-Agent",
    )
}  # fmt: skip
MOST_HEADER = 200  # characters of a kept header's value
HEADER_LINE = rb"\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}: [\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?"
REQUEST_HEAD = re.compile(rb"POST [!-~]+ HTTP/1\.1(?:" + HEADER_LINE + rb"){1,100}")
START_LINE_MOST = 60  # bytes of the method and the path
HEAD_MOST = 8_000  # bytes of a head; aiohttp refuses longer lines
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: ([1-9][0-9]{0,4})\r\n", re.IGNORECASE)
# headers that change how the body is read, or what follows the answer
SPECIAL_HEADERS = frozenset({"transfer-encoding", "content-encoding", "expect", "upgrade", "trailer"})
STATUS_LINES = {202: b"202 Accepted", 500: b"500 Internal Server Error", 503: b"503 Service Unavailable"}

ANSWER_HEAD = (
    b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %b\r\nX-Request-Id: %b\r\n"
    b"%b\r\n%b"
)


class Stored(Answer, frozen=True, kw_only=True):
    """Stored, or stored already (`duplicate`)"""

    delivery: str
    duplicate: Yes | UnsetType = UNSET


class Taken(Stored, frozen=True, kw_only=True):
    """Stored, or stored already (`duplicate`); `ignored` says why nothing follows from it"""

    ignored: str | UnsetType = UNSET


class Reference(msgspec.Struct):
    """What identifies a member of a body."""

    id: Any = None
    full_name: Any = None


class Summary(msgspec.Struct):
    """The members of a body that the inbox stores."""

    action: Any = None
    repository: Reference | None = None
    installation: Reference | None = None


_decoder = msgspec.json.Decoder(Summary)


def ignore(_what: object) -> None:
    """Count nothing more than every request is counted by."""


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Who delivers at an address of its own, which ends in `/webhooks`."""

    path: str
    limit: int  # bytes of a body
    # (headers, by names in lower case or ignoring their case, body, context) -> what is stored; raises Rejected
    admit: Callable[[Mapping[str, str], bytes, Context], Incoming]
    taken: Callable[[Incoming], None] = ignore  # counts a delivery that was stored, or had been
    refused: Callable[[Rejected], None] = ignore


def all_senders(features: Features) -> list[Sender]:
    """Return the senders of all features."""
    groups: Iterable[tuple[Sender, ...]] = load_each(features, "senders")
    return [sender for group in groups for sender in group]


def make_receiver(sender: Sender) -> Handler:
    """Return the request handler of a sender: verifies, stores, acknowledges."""

    async def receive(request: web.Request) -> web.Response:
        context = request.app[CONTEXT]
        metrics.READ_BY_AIOHTTP.inc()
        body = await read_body(request, limit=sender.limit)
        try:
            if len(body) > LARGE:
                incoming = await asyncio.to_thread(sender.admit, request.headers, body, context)
            else:
                incoming = sender.admit(request.headers, body, context)
            if "ignored" in incoming:
                request.app[IGNORED_LIMITER].ignored(request, incoming["ignored"])
        except Rejected as refusal:
            sender.refused(refusal)
            raise
        new = await context.intake.put(incoming)
        body_of_answer = acknowledge(sender, incoming, new=new)
        answer = web.Response(body=body_of_answer, status=202, content_type="application/json")
        if len(body) > SMALL:  # the next delivery can take the fast path only on another connection
            answer.force_close()
        return answer

    return receive


def acknowledge(sender: Sender, incoming: Incoming, *, new: bool) -> bytes:
    """Count a delivery that is stored, and return the body of its answer."""
    sender.taken(incoming)
    (metrics.STORED if new else metrics.DUPLICATES).inc()
    duplicate: Yes | UnsetType = UNSET if new else True
    if (why := incoming.get("ignored")) is not None:
        return msgspec.json.encode(Taken(delivery=incoming["guid"], duplicate=duplicate, ignored=why))
    return msgspec.json.encode(Stored(delivery=incoming["guid"], duplicate=duplicate))


def admit_delivery(headers: Mapping[str, str], body: bytes, context: Context) -> Incoming:
    """Verify a delivery and return what is stored of it; raises Rejected 401, 400 or 415.

    Names of headers are in lower case here and below, or those of a mapping that ignores their case.
    """
    settings = context.settings
    verify_signature(
        body, headers.get("x-hub-signature-256", ""), secrets_for(settings, headers.get(TARGET_HEADER))
    )
    return read_delivery(headers, body, settings)


def verify_signature(body: bytes, signature: str, secrets: tuple[str, ...]) -> None:
    """Check `sha256=<hex HMAC of the raw bytes>` against every secret in force; raises Rejected 401.

    https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    """
    received = signature.encode("utf-8", "replace")
    matches = [
        hmac.compare_digest(
            received, b"sha256=" + hmac.digest(secret.encode(), body, "sha256").hex().encode()
        )
        for secret in secrets
    ]
    if not any(matches):
        problem = "does not match" if signature else "is missing"
        raise Rejected(
            401,
            "invalid_signature",
            f"X-Hub-Signature-256 {problem}: check the App's webhook secret (WEBHOOK_SECRET)",
        )


def secrets_for(settings: Settings, target: str | None) -> tuple[str, ...]:
    """Return the secrets a delivery to this App may be signed with."""
    if settings.relay_app_id is not None and target == str(settings.relay_app_id):
        return settings.relay_webhook_secret or settings.webhook_secret
    if target == str(settings.app_id):
        return settings.webhook_secret
    return settings.webhook_secret + settings.relay_webhook_secret


def read_delivery(headers: Mapping[str, str], body: bytes, settings: Settings) -> Incoming:
    """Read what the inbox stores; raises Rejected 400 or 415."""
    if headers.get("content-type", "").lower().startswith("application/x-www-form-urlencoded"):
        raise Rejected(415, "unsupported_media_type", "set the webhook's content type to application/json")
    guid, event = headers.get("x-github-delivery", ""), headers.get("x-github-event", "")
    for name, value, pattern in (
        ("X-GitHub-Delivery", guid, IDENTIFIER),
        ("X-GitHub-Event", event, EVENT_NAME),
    ):
        if not pattern.fullmatch(value):
            raise Rejected(400, "invalid_header", f"the header {name} is missing or malformed")
    summary = read_summary(body)
    target = headers.get(TARGET_HEADER)
    ours = {str(settings.app_id), str(settings.relay_app_id)}
    return Incoming(
        guid=guid,
        event=event,
        body=body,
        action=as_text(summary.action),
        repo=as_text(summary.repository.full_name) if summary.repository else None,
        repository_id=as_int(summary.repository.id) if summary.repository else None,
        installation_id=as_int(summary.installation.id) if summary.installation else None,
        app_id=int(target) if target and target.isdecimal() and len(target) < 19 else None,
        headers=kept_headers(headers),
        foreign=target is not None and target not in ours,
    )


def read_summary(body: bytes) -> Summary:
    """Read the few members that the inbox stores, skipping the rest; raises Rejected 400 unless it is a JSON object."""
    try:
        require_utf8(body)
        return _decoder.decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_leniently(decode_object(body))


def kept_headers(headers: Mapping[str, str]) -> str | None:
    """Return the headers worth storing as JSON, cut and cleaned for any database; never a signature or a token."""
    kept = {
        name: clean(value[:MOST_HEADER]) for key, name in KEPT_HEADERS.items() if (value := headers.get(key))
    }
    return msgspec.json.encode(kept).decode() if kept else None


GITHUB_SENDER = Sender(path="/api/github/webhooks", limit=BODY_LIMIT, admit=admit_delivery)
SENDERS = (GITHUB_SENDER,)


class FastPath:
    """Stores deliveries for one application; called with what a connection has read between two requests."""

    def __init__(self, app: web.Application) -> None:
        self._app = app
        self._context = app[CONTEXT]
        self._senders = {
            f"POST {sender.path} ".encode(): sender for sender in all_senders(self._context.features)
        }
        self._date = (0, b"")  # a second, and the value of the header Date then

    def __call__(self, data: bytes) -> PendingDelivery | None:
        """Store the delivery if `data` is one complete request; otherwise return None."""
        sender = self._sender(data)
        if sender is None or len(data) > SMALL or traces.enabled():
            return None
        started = time.perf_counter()
        head, _, body = data.partition(b"\r\n\r\n")
        if len(head) > HEAD_MOST or not REQUEST_HEAD.fullmatch(head):
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
        """Return whether `data` starts a small delivery whose body is not complete yet."""
        if self._sender(data) is None or traces.enabled():
            return False
        end = data.find(b"\r\n\r\n")
        length = CONTENT_LENGTH.search(data, 0, end + 2) if end >= 0 else None
        return length is not None and len(data) < end + 4 + int(length[1]) <= SMALL

    def answer(self, pending: PendingDelivery) -> bytes:
        """Return the answer to a delivery that was stored, or could not be stored."""
        status, body, headers = self._outcome(pending)
        metrics.count_request("webhooks", status, time.perf_counter() - pending.started)
        guid = pending.incoming["guid"].encode()
        return ANSWER_HEAD % (STATUS_LINES[status], len(body), self._date_header(), guid, headers, body)

    def _outcome(self, pending: PendingDelivery) -> tuple[int, bytes, bytes]:
        """Return status, body and further headers."""
        error = pending.stored.exception()
        if error is None:
            return 202, acknowledge(pending.sender, pending.incoming, new=pending.stored.result()), b""
        named = REQUEST.set((pending.incoming["guid"], pending.sender.path))
        try:
            refusal = server.describe_failure(self._app, error)
        finally:
            REQUEST.reset(named)
        headers = "".join(f"{name}: {value}\r\n" for name, value in refusal.headers.items())
        return refusal.status, msgspec.json.encode(server.refusal_body(refusal)), headers.encode()

    def _sender(self, data: bytes) -> Sender | None:
        """Return the sender that delivers at the address of a request, None if it is no delivery."""
        end = data.find(b" ", len(b"POST "), START_LINE_MOST) + 1
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


def _read_leniently(data: dict[str, Any]) -> Summary:
    """Read what is readable of a body whose members do not have the types GitHub documents."""
    summary = Summary(action=data.get("action"))
    for name in ("repository", "installation"):
        if isinstance(inner := data.get(name), dict):
            setattr(summary, name, Reference(id=inner.get("id"), full_name=inner.get("full_name")))
    return summary


def _is_plain(headers: dict[str, str]) -> bool:
    """Return whether nothing in these headers needs aiohttp, which refuses a request without Host."""
    keeps = headers.get("connection", "keep-alive").lower() == "keep-alive"
    return keeps and "host" in headers and not SPECIAL_HEADERS & headers.keys()


def _parse_headers(head: bytes) -> dict[str, str] | None:
    """Return the headers by their names in lower case; None if a name occurs twice."""
    lines = head.decode("ascii").split("\r\n")[1:]
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return headers if len(headers) == len(lines) else None
