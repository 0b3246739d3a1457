"""Request bodies of strangers: bounded in size, time and memory, never decompressed, strictly UTF-8 JSON.

A body's first 64 KiB are not counted: there are at most as many of them as connections, and so a small delivery never
waits behind a large one. Larger bodies wait, in the order they came, for a slot and for memory of their whole length.
"""

from __future__ import annotations

import asyncio
import codecs
from typing import Any

import msgspec
from aiohttp import web

from bot.core.errors import Rejected
from bot.web.app_keys import BODY_SECONDS

SMALL = 64 * 1024  # bytes of a body that are not counted
LARGE = 256 * 1024  # bytes; larger bodies are decoded in a thread, so that everybody else is served meanwhile
MOST_BYTES = 128 * 1024 * 1024  # of larger bodies, from their reading to their answer
MOST_BODIES = 64  # larger ones at once
PATIENCE = 20.0  # seconds a body waits for memory


class BodyBudget:
    """The memory that larger bodies may take, from their first bytes to their answer."""

    def __init__(
        self, *, most_bytes: int = MOST_BYTES, most_bodies: int = MOST_BODIES, patience: float = PATIENCE
    ) -> None:
        self._bytes = most_bytes  # left
        self._bodies = most_bodies  # left
        self._patience = patience
        self._turn = asyncio.Lock()  # first come, first served
        self._released = asyncio.Event()

    async def acquire(self, request: web.Request, size: int) -> None:
        """Wait until a body of that many bytes fits; raises Rejected 503 if that takes too long.

        The request holds the memory until its answer is made (`release`).
        """
        try:
            async with asyncio.timeout(self._patience), self._turn:
                while self._bytes < size or not self._bodies:
                    self._released.clear()
                    await self._released.wait()
                self._bytes -= size
                self._bodies -= 1
                request[BODY_BYTES] = size
        except TimeoutError:
            detail = "too many large bodies are being read at once: send it again in a while"
            headers = {"Retry-After": "10", "Connection": "close"}
            raise Rejected(503, "busy", detail, headers=headers) from None

    def release(self, request: web.Request) -> None:
        """Give back the memory a request holds, if any."""
        if BODY_BYTES in request:
            self._bytes += request[BODY_BYTES]
            self._bodies += 1
            self._released.set()


BODY_BUDGET: web.AppKey[BodyBudget] = web.AppKey("body_budget", BodyBudget)
BODY_BYTES: web.RequestKey[int] = web.RequestKey("body_bytes", int)


async def read_body(request: web.Request, *, limit: int) -> bytes:
    """Return the raw bytes; raises Rejected 415, 413, 408, or 503 where memory stays short."""
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Rejected(415, "unsupported_encoding", "send the body as it is, without Content-Encoding")
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    if request.content.is_eof():  # small bodies are usually there already
        body = request.content.read_nowait()
        if len(body) > SMALL:
            await request.app[BODY_BUDGET].acquire(request, len(body))
        return body
    seconds = request.app[BODY_SECONDS]
    try:
        async with asyncio.timeout(seconds) as deadline:
            return await _read_arriving(request, limit, deadline)
    except TimeoutError:
        detail = f"the body did not arrive within {seconds:g} s: send it again in one go"
        raise Rejected(408, "body_timeout", detail, headers={"Connection": "close"}) from None


async def _read_arriving(request: web.Request, limit: int, deadline: asyncio.Timeout) -> bytes:
    """Read until the end; waiting for memory is not the sender's fault and does not count."""
    chunks, size, acquired = [], 0, False
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if size > SMALL and not acquired:
            due = deadline.when()
            waits_from = asyncio.get_running_loop().time()
            deadline.reschedule(None)
            await request.app[BODY_BUDGET].acquire(request, request.content_length or limit)
            waited = asyncio.get_running_loop().time() - waits_from
            deadline.reschedule(due and due + waited)
            acquired = True
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


def _too_large(limit: int) -> Rejected:
    detail = f"the body is larger than {limit / 1024 / 1024:.0f} MiB, the most this address takes"
    return Rejected(413, "body_too_large", detail, headers={"Connection": "close"})
