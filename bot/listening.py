"""How are connections taken, answered, and ended?"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

from aiohttp import web

from bot.core.errors import Misconfigured, in_words
from bot.ingest.fast_path import FastPath
from bot.web.app_keys import CONTEXT
from bot.web.connections import Connection, ConnectionFactory, ConnectionLimits, most_connections

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bot.core.settings import Settings
    from bot.web.handover import Router

SHUTDOWN = 2.0  # seconds for requests in flight
BACKLOG = 1024  # connections the system holds while the bot is busy


@contextlib.asynccontextmanager
async def answering(
    app: web.Application, listening: socket.socket, limits: ConnectionLimits
) -> AsyncIterator[None]:
    """Serve the application on a socket; at the end requests in flight get a moment."""
    async with connections(app, None, limits) as factory, accepting(listening, factory):
        yield


@contextlib.asynccontextmanager
async def connections(
    app: web.Application, router: Router | None, limits: ConnectionLimits | None = None
) -> AsyncIterator[ConnectionFactory]:
    """Yield what makes an application's connections; at the end requests in flight get a moment."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN)
    await runner.setup()
    assert runner.server
    try:
        yield ConnectionFactory(
            runner.server,
            limits or ConnectionLimits(connections=most_connections()),
            router,
            None if app[CONTEXT].settings.role == "worker" else FastPath(app),
        )
    finally:
        await _until_idle(runner.server)  # during its clean-up aiohttp reads no more of a request
        await runner.cleanup()


@contextlib.asynccontextmanager
async def accepting(listening: socket.socket, factory: ConnectionFactory) -> AsyncIterator[None]:
    """Take connections on a socket; none at the end."""
    server = await asyncio.get_running_loop().create_server(factory, sock=listening, backlog=BACKLOG)
    try:
        yield
    finally:
        server.close()


async def _until_idle(server: web.Server) -> None:
    """Wait until no request is being served, or for too long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SHUTDOWN):
            while any(isinstance(one, Connection) and not one.idle_for() for one in server.connections):  # noqa: ASYNC110 - a connection has no event for that
                await asyncio.sleep(0.02)


def listen(settings: Settings) -> socket.socket:
    """Return a socket that listens where the settings say; raises Misconfigured where that cannot be."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        problem = (
            f"cannot listen on {settings.listening}: {in_words(error)}; end what listens there, "
            "or choose with --host and --port (OOTBOT_HOST, OOTBOT_PORT)"
        )
        raise Misconfigured([problem]) from error
    return listening
