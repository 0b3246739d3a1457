"""A process that does not listen: it serves the connections passed to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING

from bot.web import handover
from bot.web.handover import CONNECTION, WAKE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bot.web.connections import ConnectionFactory
    from bot.web.handover import Channel

ORPHANED = 1  # exit code


@contextlib.asynccontextmanager
async def listening(
    channel: Channel, factory: ConnectionFactory, work_waiting: asyncio.Event
) -> AsyncIterator[None]:
    """Take what the process that listens sends; once that is gone, end at once, as if killed together with it.

    The lock on the database comes as a message too: its descriptor stays open for as long as this process lives.
    """
    loop = asyncio.get_running_loop()
    adopting: set[asyncio.Task[None]] = set()

    def read() -> None:
        try:
            for message in channel.received():
                if message.kind == CONNECTION and message.descriptor is not None:
                    connection = socket.socket(fileno=message.descriptor)
                    task = asyncio.create_task(handover.adopt(connection, message.data, factory))
                    adopting.add(task)
                    task.add_done_callback(adopting.discard)
                elif message.kind == WAKE:
                    work_waiting.set()
        except EOFError:
            os._exit(ORPHANED)

    loop.add_reader(channel.fileno(), read)
    try:
        yield
    finally:
        loop.remove_reader(channel.fileno())
