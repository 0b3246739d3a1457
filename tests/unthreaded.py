"""SQLite's statements in the event loop's own thread: handing one over takes longer than most of them do.

So it is in a worker's process. Where another bot of the test holds the lock, a statement is handed over and waits there.
Nightly runs hand all over that `ootbot serve --processes 1` hands over; tests/db is about who does.
"""

from __future__ import annotations

import contextlib

import sqlalchemy as sa

from bot.db.sqlite import NOT_HERE, Connection, Threads


class Locked(Exception):
    """Another connection holds the lock."""


class Unthreaded(Threads):
    """Runs at once what is to be handed over, unless it had to wait for a lock."""

    async def run(self, work, *arguments, writes):
        connection = getattr(work, "__self__", None)
        if not isinstance(connection, Connection):  # it opens, closes, commits or rolls back
            return work(*arguments)
        with contextlib.suppress(Locked):
            return _run_at_once(connection, *arguments)
        return await super().run(work, *arguments, writes=writes)


def _run_at_once(connection, work):
    connection._session.driver.wait_for_others(False)
    try:
        return connection._begun(work)
    except sa.exc.OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in NOT_HERE:
            raise Locked from error
        raise
