"""Wake-ups between processes by PostgreSQL's LISTEN and NOTIFY: another process has committed work.

A notification may be lost with its connection: workers look for work every second anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import structlog

from bot.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from bot.db.connection_watchdog import Watchdog
    from bot.db.store import Store

CHANNEL = "ootbot_work"
CHECK_EVERY = 30.0  # seconds between checks that the connection still works
ANSWER_WITHIN = 2 * CHECK_EVERY  # seconds without an answer until another connection is used
WAITS = (1.0, 30.0)  # seconds before listening is tried again: first and longest

log = structlog.get_logger("bot.db.notify")


def notification(process: str) -> sa.Select[Any]:
    """Return the statement that wakes the other processes at the commit; PostgreSQL only."""
    return sa.select(sa.func.pg_notify(CHANNEL, process))


async def listen(store: Store) -> None:
    """Set `work_waiting` whenever another process leaves work, until cancelled. SQLite has no other process."""
    if store.sqlite:
        return
    wait, longest = WAITS
    while True:
        began = asyncio.get_running_loop().time()
        try:
            async with store.connection(answer_within=ANSWER_WITHIN) as (connection, watchdog):
                await _listen_on(store, connection, watchdog)
        except StoreUnavailable as error:
            log.warning(
                "cannot listen for other processes, polling every second", reason=str(error), again_in=wait
            )
        if asyncio.get_running_loop().time() - began > CHECK_EVERY:  # it worked for a while
            wait = WAITS[0]
        await asyncio.sleep(wait)
        wait = min(2 * wait, longest)


async def _listen_on(store: Store, connection: Any, watchdog: Watchdog) -> None:
    """Listen on asyncpg's connection until it is lost, which raises."""
    lost = asyncio.Event()

    def on_notification(_connection: object, _pid: int, _channel: str, sender: str) -> None:
        if sender != store.name:  # our own commits set the event themselves
            store.work_waiting.set()

    def on_termination(_connection: object) -> None:
        lost.set()

    await connection.add_listener(CHANNEL, on_notification)
    connection.add_termination_listener(on_termination)
    store.work_waiting.set()  # something may have come before
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(lost.wait(), CHECK_EVERY)
            await connection.execute("SELECT 1")
            watchdog.answered()
    finally:
        connection.remove_termination_listener(on_termination)
        connection.terminate()  # unusable for others while it listens, and to end that the server would have to answer
