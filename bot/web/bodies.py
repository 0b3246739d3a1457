"""How is a request body read from a stranger? Bounded in size and time, never decompressed, strictly UTF-8 JSON."""

from __future__ import annotations

import asyncio
import codecs
from typing import TYPE_CHECKING, Any

import msgspec

from bot.errors import Rejected
from bot.web.keys import BODY_SECONDS
from bot.web.limits import ROOM, SMALL

if TYPE_CHECKING:
    from aiohttp import web

# bytes; larger bodies are worked on in a thread, so that everybody else is served meanwhile
LARGE = 256 * 1024


async def read_body(request: web.Request, *, limit: int) -> bytes:
    """Return the raw bytes; raises Rejected 415, 413, 408, or 503 where there is no room for it."""
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Rejected(415, "unsupported_encoding", "send the body as it is, without Content-Encoding")
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    if request.content.is_eof():  # small bodies are usually there already
        body = request.content.read_nowait()
        if len(body) > SMALL:
            await request.app[ROOM].enter(request, len(body))
        return body
    seconds = request.app[BODY_SECONDS]
    try:
        async with asyncio.timeout(seconds) as deadline:
            return await _read_arriving(request, limit, deadline)
    except TimeoutError:
        detail = f"the body did not arrive within {seconds:g} s: send it again in one go"
        raise Rejected(408, "body_timeout", detail, headers={"Connection": "close"}) from None


async def _read_arriving(request: web.Request, limit: int, deadline: asyncio.Timeout) -> bytes:
    """Read until the end; the wait for room is not the sender's fault and does not count."""
    chunks, size, has_room = [], 0, False
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if size > SMALL and not has_room:
            due = deadline.when()
            waits_from = asyncio.get_running_loop().time()
            deadline.reschedule(None)
            await request.app[ROOM].enter(request, request.content_length or limit)
            waited = asyncio.get_running_loop().time() - waits_from
            deadline.reschedule(due and due + waited)
            has_room = True
    return b"".join(chunks) if size <= LARGE else await asyncio.to_thread(b"".join, chunks)


def require_utf8(body: bytes) -> None:
    """Raise UnicodeDecodeError unless these bytes are UTF-8; of many, never holds all as text (four times as large)."""
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
