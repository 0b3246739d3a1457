"""Request bodies of strangers: bounded in size, time and memory, never decompressed, strictly UTF-8 JSON.

A body's first 64 KiB are not counted: there are at most as many of them as connections, and so a small delivery never
waits behind a large one. What is larger waits for capacity (`body_capacity`).
"""

from __future__ import annotations

import asyncio
import codecs
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from bot.core.errors import Rejected
from bot.web.app_keys import BODY_SECONDS, CONTEXT
from bot.web.body_capacity import MIB, Body, BodyCapacity, CapacityLimits
from bot.web.client_ip import client_ip, is_shared

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

SMALL = 64 * 1024  # bytes of a body that are not counted
LARGE = (
    256 * 1024
)  # bytes; larger bodies are decoded in a thread, so that other requests are served meanwhile
STRANGERS = CapacityLimits(most_bytes=96 * MIB)
AUTHENTICATED = CapacityLimits(most_bytes=32 * MIB)


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
    """Return the routes of an address that machines post to: some write it with a slash at the end."""
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
    """Return a body that begins to count, with the capacity it is charged to."""
    capacities, seconds = request.app[BODY_CAPACITIES], request.app[BODY_SECONDS]
    if caller is not None:
        return Body(capacities.authenticated, deadline, seconds, caller=caller, shared=False)
    trusted = request.app[CONTEXT].settings.trusted_proxies
    address, shared = client_ip(request, trusted), is_shared(request, trusted)
    return Body(capacities.strangers, deadline, seconds, caller=address, shared=shared)


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


def _too_large(limit: int) -> Rejected:
    detail = f"the body is larger than {limit / 1024 / 1024:.0f} MiB, the most this address takes"
    return Rejected(413, "body_too_large", detail, headers={"Connection": "close"})
