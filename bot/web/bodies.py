"""How is a request body read from a stranger? Bounded in size and time, never decompressed, strictly UTF-8 JSON."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from bot.errors import Rejected
from bot.web.keys import BODY_SECONDS

if TYPE_CHECKING:
    from aiohttp import web


async def read_body(request: web.Request, *, limit: int) -> bytes:
    """Return the raw bytes; raises Rejected 415, 413 or 408."""
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Rejected(415, "unsupported_encoding", "send the body as it is, without Content-Encoding")
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    if request.content.is_eof():  # small bodies are usually there already
        return request.content.read_nowait()
    chunks, size = [], 0
    seconds = request.app[BODY_SECONDS]
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.content.iter_any():
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
    except TimeoutError:
        detail = f"the body did not arrive within {seconds:g} s: send it again in one go"
        raise Rejected(408, "body_timeout", detail, headers={"Connection": "close"}) from None
    return b"".join(chunks)


def decode_object(body: bytes, *, code: str = "invalid_json") -> dict[str, Any]:
    """Return the JSON object a body holds; raises Rejected 400."""
    try:
        body.decode()
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(400, code, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise Rejected(400, code, "the body is nested too deeply") from None
    if not isinstance(value, dict):
        raise Rejected(400, code, "the body must be a JSON object")
    return value


def _too_large(limit: int) -> Rejected:
    detail = f"the body is larger than {limit / 1024 / 1024:.0f} MiB, the most this address takes"
    return Rejected(413, "body_too_large", detail, headers={"Connection": "close"})
