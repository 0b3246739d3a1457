"""Request bodies of strangers: bounded in size, time and memory, never decompressed, strictly UTF-8 JSON.

Large ones are limited while they arrive: how many at once, how much memory they take, how slow they may be.
"""

from __future__ import annotations

import asyncio
import codecs
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from aiohttp import web

from bot.core.errors import Rejected
from bot.web.access import BODY_SECONDS, CONTEXT
from bot.web.limits import client_ip, is_shared

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

MIB = 1024 * 1024
OVERDRAFT = (
    25 * MIB
)  # bytes the oldest body may take beyond the rest: half-read bodies must not wait for one another
SMALL = 64 * 1024  # bytes of a body that are not counted
LARGE = (
    256 * 1024
)  # bytes; larger bodies are decoded in a thread, so that other requests are served meanwhile


@dataclass(frozen=True, kw_only=True)
class CapacityLimits:
    """What all bodies of one kind of caller may take together."""

    most_bytes: int  # from their arrival to their answer
    most_bodies: int = 64  # arriving at once
    most_each: int = 8  # arriving at once from one caller
    least_rate: int = 64 * 1024  # bytes a second
    grace: float = 2.0  # seconds until a body that keeps no other waiting may be called slow
    patience: float = 5.0  # seconds a body waits for capacity in all: GitHub hangs up after ten


class _Waiter(NamedTuple):
    body: Body
    size: int
    granted: asyncio.Future[None]


STRANGERS = CapacityLimits(most_bytes=96 * MIB)
AUTHENTICATED = CapacityLimits(most_bytes=32 * MIB)


class Body:
    """A body that is being read, or was read and is not answered yet."""

    def __init__(
        self, capacity: BodyCapacity, deadline: asyncio.Timeout, seconds: float, *, caller: str, shared: bool
    ) -> None:
        self.capacity = capacity
        self.caller = caller  # an address, or who was authenticated
        self.shared = shared  # the address is a proxy's: its bodies are many people's
        self.size = 0  # bytes it is charged for
        self.whole = False  # all of it has come
        self.waits = False  # for capacity: meanwhile its rate says nothing
        self.slow = False  # its rate is what ends its time
        self._deadline = deadline
        self._ends = deadline.when() or 0.0  # the latest it may come in, `seconds` after it began
        self._began = self._ends - seconds
        self._waited = 0.0

    @property
    def patience(self) -> float:
        """The seconds it may still wait for capacity."""
        return max(self.capacity.limits.patience - self._waited, 0)

    @property
    def behind_at(self) -> float:
        """The time at which it falls below the least rate, unless more of it arrives."""
        return self._began + self._waited + self.size / self.capacity.limits.least_rate

    def rate(self, now: float) -> float:
        """Return its bytes per second, not counting time its sender was kept waiting."""
        return self.size / max(now - self._began - self._waited, 0.001)

    def stop_clock(self) -> float:
        """Stop the sender's clock while the body waits for capacity; returns the time."""
        self.waits = True
        self._deadline.reschedule(None)
        return asyncio.get_running_loop().time()

    def start_clock(self, since: float) -> None:
        """Start the sender's clock again."""
        self.waits = False
        self._waited += asyncio.get_running_loop().time() - since

    def keep_time(self) -> None:
        """Set the time at which it is cut off, unless more of it arrives."""
        if self.whole:
            self._deadline.reschedule(None)
            return
        slow_at = max(self.behind_at, self._began + self._waited + self.capacity.limits.grace)
        ends = self._ends + self._waited
        self.slow = slow_at < ends
        self._deadline.reschedule(min(slow_at, ends))

    @property
    def is_ending(self) -> bool:
        """Whether its time is over or it was cut off, so that it is about to leave."""
        return self._deadline.expired()

    def cut_off(self) -> None:
        """End its reading now."""
        self.slow = True
        self._deadline.reschedule(0)


class BodyCapacity:
    """The large bodies of one kind of caller."""

    def __init__(self, limits: CapacityLimits) -> None:
        self.limits = limits
        self._bytes = 0
        self._arriving: dict[Body, None] = {}  # oldest first
        self._each: Counter[str] = Counter()  # of these, by caller
        self._waiting: list[_Waiter] = []  # first come, first served
        self._leaving: Body | None = None  # cut off, and still here
        self._look_again: asyncio.TimerHandle | None = None

    async def take(self, body: Body, size: int) -> None:
        """Charge a body for bytes that have arrived, once there is capacity.

        Raises Rejected 503 if that takes too long, TimeoutError when the body was cut off.
        """
        if body is self._leaving:
            raise TimeoutError  # some more has come in the very moment
        if self._fits(body, size):
            self._admit(body, size)
        else:
            await self._wait(body, size)
        body.keep_time()

    def arrived(self, body: Body) -> None:
        """Note that a body has arrived in full, or never will: others may arrive in its place."""
        if body in self._arriving:
            del self._arriving[body]
            self._each -= Counter([body.caller])
        if self._leaving is body:
            self._leaving = None
        self._look()

    def release(self, body: Body) -> None:
        """Release the memory of a body that was answered."""
        self._bytes -= body.size
        body.size = 0
        self.arrived(body)

    async def _wait(self, body: Body, size: int) -> None:
        waiter = _Waiter(body, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        patience, since = body.patience, body.stop_clock()
        self._look()
        try:
            async with asyncio.timeout(patience):
                await waiter.granted
        except TimeoutError:
            detail = "too many large bodies are being read at once: send it again in a while"
            headers = {"Retry-After": "10", "Connection": "close"}
            raise Rejected(503, "busy", detail, headers=headers) from None
        finally:
            body.start_clock(since)
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def _fits(self, body: Body, size: int) -> bool:
        oldest = next(iter(self._arriving), body)
        most = self.limits.most_bytes + (OVERDRAFT if oldest is body else 0)
        if self._bytes + size > most:
            return False
        return self._has_place(body) or not (
            self._waits_for_its_own(body) or len(self._arriving) >= self.limits.most_bodies
        )

    def _has_place(self, body: Body) -> bool:
        return body.whole or body in self._arriving

    def _waits_for_its_own(self, body: Body) -> bool:
        """Whether others of the same caller have to arrive first."""
        own = 0 if body.shared else self._each[body.caller]
        return own >= self.limits.most_each and not self._has_place(body)

    def _admit(self, body: Body, size: int) -> None:
        self._bytes += size
        body.size += size
        if not body.whole and body not in self._arriving:
            self._arriving[body] = None
            self._each[body.caller] += 1

    def _look(self) -> None:
        """Admit the bodies that fit; where one still waits, cut off one that is too slow, or look again once it is."""
        if self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.granted.done() and self._fits(waiter.body, waiter.size):
                self._admit(waiter.body, waiter.size)
                waiter.granted.set_result(None)
            else:
                self._waiting.append(waiter)
        if self._leaving is None and not any(body.is_ending for body in self._arriving):
            self._cut_off_slowest()

    def _cut_off_slowest(self) -> None:
        """Cut off the slowest body that is too slow and keeps others waiting, one at a time."""
        loop = asyncio.get_running_loop()
        now, rivals = loop.time(), self._in_the_way()
        if victims := [body for body in rivals if body.behind_at <= now] or self._above_their_share():
            self._leaving = min(victims, key=lambda body: body.rate(now))
            self._leaving.cut_off()
        elif rivals:
            self._look_again = loop.call_at(min(body.behind_at for body in rivals), self._look)

    def _in_the_way(self) -> list[Body]:
        """Return the bodies whose end might admit a waiting sender."""
        own = {waiter.body.caller for waiter in self._waiting if self._waits_for_its_own(waiter.body)}
        for_all = any(not self._waits_for_its_own(waiter.body) for waiter in self._waiting)
        return [body for body in self._arriving if not body.waits and (for_all or body.caller in own)]

    def _above_their_share(self) -> list[Body]:
        """Return the bodies of addresses that are shared, or said to be, once they keep out a caller that has less."""
        most = self.limits.most_each
        if all(self._each[waiter.body.caller] >= most for waiter in self._waiting):
            return []
        return [body for body in self._arriving if self._each[body.caller] > most]


class BodyCapacities:
    """Capacities for larger bodies: strangers' and authenticated callers', who never wait for strangers."""

    def __init__(
        self, strangers: CapacityLimits = STRANGERS, authenticated: CapacityLimits = AUTHENTICATED
    ) -> None:
        self.strangers = BodyCapacity(strangers)
        self.authenticated = BodyCapacity(authenticated)


BODY_CAPACITIES: web.AppKey[BodyCapacities] = web.AppKey("body_capacities", BodyCapacities)
BODY: web.RequestKey[Body] = web.RequestKey("body", Body)


def post_routes(path: str, handler: Handler) -> list[web.RouteDef]:
    """Return the routes of an address that machines post to, also with a slash at the end."""
    return [web.post(path, handler), web.post(f"{path}/", handler)]


async def read_body(request: web.Request, *, limit: int, caller: str | None = None) -> bytes:
    """Return the raw bytes; raises Rejected 415, 413, 408, or 503 where capacity stays short.

    `caller` is who was authenticated, None for a stranger. The request counts until its answer is made.
    """
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Rejected(415, "unsupported_encoding", "send the body as it is, without Content-Encoding")
    length = request.content_length
    if length is not None and length > limit:
        raise _too_large(limit)
    if length is not None and length <= SMALL and request.content.is_eof():  # usually it is there already
        return request.content.read_nowait()
    seconds = request.app[BODY_SECONDS]
    try:
        async with asyncio.timeout(seconds) as deadline:
            chunks = await _chunks(request, limit, caller, deadline)
    except TimeoutError:
        slow = BODY in request and request[BODY].slow
        how = "arrives too slowly" if slow else f"did not arrive within {seconds:g} s"
        detail = f"the body {how}: send it again in one go"
        raise Rejected(408, "body_timeout", detail, headers={"Connection": "close"}) from None
    size = sum(map(len, chunks))
    return b"".join(chunks) if size <= LARGE else await asyncio.to_thread(b"".join, chunks)


def require_utf8(body: bytes) -> None:
    """Raise UnicodeDecodeError unless these bytes are UTF-8; never holds a large body as text, four times its size."""
    if len(body) <= LARGE:
        body.decode()
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(body), LARGE):
        decoder.decode(body[start : start + LARGE])
    decoder.decode(b"", final=True)


def decode_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object a body holds; raises Rejected 400."""
    try:
        require_utf8(body)
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(400, "invalid_json", f"the body is not JSON: {error}") from None
    except RecursionError:
        raise Rejected(400, "invalid_json", "the body is nested too deeply") from None
    if not isinstance(value, dict):
        raise Rejected(400, "invalid_json", "the body must be a JSON object")
    return value


async def _chunks(
    request: web.Request, limit: int, caller: str | None, deadline: asyncio.Timeout
) -> list[bytes]:
    """Read until the end; a body that is larger than SMALL is charged for what has come."""
    chunks, size, body = [], 0, None
    async for chunk in request.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        if size > SMALL:
            body = request[BODY] = body or _body(request, caller, deadline)
            body.whole = request.content.is_eof()
            await body.capacity.take(body, size - body.size)
    if body:
        body.capacity.arrived(body)
    return chunks


def _body(request: web.Request, caller: str | None, deadline: asyncio.Timeout) -> Body:
    """Register a body and return it with the capacity that it is charged to."""
    capacities, seconds = request.app[BODY_CAPACITIES], request.app[BODY_SECONDS]
    if caller is not None:
        return Body(capacities.authenticated, deadline, seconds, caller=caller, shared=False)
    trusted = request.app[CONTEXT].settings.trusted_proxies
    address, shared = client_ip(request, trusted), is_shared(request, trusted)
    return Body(capacities.strangers, deadline, seconds, caller=address, shared=shared)


def _too_large(limit: int) -> Rejected:
    detail = f"the body is larger than {limit / 1024 / 1024:.0f} MiB, the most this address takes"
    return Rejected(413, "body_too_large", detail, headers={"Connection": "close"})
