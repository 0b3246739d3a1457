"""How does a process learn at once that another has left work? PostgreSQL's LISTEN and NOTIFY.

A ring may be lost with a connection: workers look for themselves every second anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import structlog

from bot.errors import StoreUnavailable

if TYPE_CHECKING:
    from bot.store.hearing import Hearing
    from bot.store.store import Store

CHANNEL = "ootbot_work"
CHECK_EVERY = 30.0  # seconds between two questions whether the connection is still there
SILENCE = 2 * CHECK_EVERY  # seconds without an answer after which another connection is taken
WAITS = (1.0, 30.0)  # seconds before listening is tried again: at first, and at most

log = structlog.get_logger("bot.store.bell")


def ring(name: str) -> sa.Select[Any]:
    """Return what tells the other processes, once it is committed, that `name` has left work; PostgreSQL only."""
    return sa.select(sa.func.pg_notify(CHANNEL, name))


async def listen(store: Store) -> None:
    """Set `work_waiting` whenever another process leaves work, until cancelled. On SQLite there is no other."""
    if store.sqlite:
        return
    wait, most = WAITS
    while True:
        began = asyncio.get_running_loop().time()
        try:
            async with store.connection(silence=SILENCE) as (connection, hearing):
                await _hear(store, connection, hearing)
        except StoreUnavailable as error:
            log.warning("cannot hear other processes, looking every second", reason=str(error), again_in=wait)
        if asyncio.get_running_loop().time() - began > CHECK_EVERY:  # it was heard for a while
            wait = WAITS[0]
        await asyncio.sleep(wait)
        wait = min(2 * wait, most)


async def _hear(store: Store, connection: Any, hearing: Hearing) -> None:
    """Listen on asyncpg's connection until that is lost, which raises."""
    lost = asyncio.Event()

    def heard(_connection: object, _pid: int, _channel: str, name: str) -> None:
        if name != store.name:  # its own work it knows of
            store.work_waiting.set()

    def ended(_connection: object) -> None:
        lost.set()

    await connection.add_listener(CHANNEL, heard)
    connection.add_termination_listener(ended)
    store.work_waiting.set()  # who knows what came before
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(lost.wait(), CHECK_EVERY)
            await connection.execute("SELECT 1")
            hearing.heard()
    finally:
        connection.remove_termination_listener(ended)
        connection.terminate()  # it listens, so it is no good to others; to stop that, the server would have to answer
