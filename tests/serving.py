"""How does a test serve an application of its own, and speak HTTP byte by byte?"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import socket
from urllib.parse import urlsplit

import pytest
from aiohttp import web

# refusals never reach the database: one kind is enough
SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
POSTGRES = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)


@contextlib.asynccontextmanager
async def serving(bot, app):
    """Serve `app` on a free port; yields `bot` as seen through that address."""
    runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=0.2)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listening).start()
    seen = copy.copy(bot)
    seen.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        yield seen
    finally:
        await runner.cleanup()


async def converse(url, *pieces, pause=0.0):
    """Send these bytes one piece after the other, then return status and JSON of the answer."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        answered = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
        for piece in pieces:
            if answered.done():
                break
            writer.write(piece)
            await writer.drain()
            await asyncio.wait([answered], timeout=pause)
        head = await answered
        length = next(
            int(line.partition(b":")[2])
            for line in head.splitlines()
            if line.lower().startswith(b"content-length:")
        )
        return int(head.split()[1]), json.loads(await reader.readexactly(length))
    finally:
        writer.close()


def request_head(method, path, headers):
    """Return the head of an HTTP/1.1 request; header values are bytes, so that they can be anything."""
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: 127.0.0.1"]
    lines += [name.encode() + b": " + value for name, value in headers.items()]
    return b"\r\n".join(lines) + b"\r\n\r\n"
