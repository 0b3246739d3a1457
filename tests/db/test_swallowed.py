"""A network that swallows everything on existing connections while new ones would work."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest
import sqlalchemy as sa

from bot.core.errors import StoreUnavailable
from bot.db import postgres
from bot.ingest import intake
from bot.ingest.inbox import Incoming
from tests.db.opened import opened, opened_intake
from tests.process import PATIENCE
from tests.serving import POSTGRES


class Network:
    """Stands between the bot and its PostgreSQL, and swallows what goes over the connections it is told."""

    def __init__(self, url):
        self._path = f"{url.query['host']}/.s.PGSQL.5432"
        self._swallowed: set[int] = set()
        self._connections = 0
        self.passing: set[asyncio.Task] = set()

    def swallow(self):
        """Let nothing through any more on what is there."""
        self._swallowed |= set(range(self._connections))

    async def pass_on(self, reader, writer):
        """One connection."""
        number, self._connections = self._connections, self._connections + 1
        self.passing.add(asyncio.current_task())
        to_reader, to_writer = await asyncio.open_unix_connection(self._path)
        await asyncio.gather(self._copy(number, reader, to_writer), self._copy(number, to_reader, writer))

    async def _copy(self, number, reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if number not in self._swallowed:
                    writer.write(data)
                    await writer.drain()
        writer.close()


@POSTGRES
async def test_one_refusal_and_all_is_well_again(database_url, clock, monkeypatch):
    monkeypatch.setattr(intake, "ANSWER_WITHIN", 0.5)
    monkeypatch.setattr(postgres, "LISTEN_ANSWER_WITHIN", 1.0)
    monkeypatch.setattr(postgres, "CHECK_EVERY", 0.5)
    monkeypatch.setattr(postgres, "LISTEN_WAITS", (0.1, 0.1))
    url = sa.make_url(database_url)
    network = Network(url)
    server = await asyncio.start_server(network.pass_on, "127.0.0.1", 0)
    _, port = server.sockets[0].getsockname()
    through = url.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
    async with (
        opened(through, clock) as store,
        opened(database_url, clock) as other,
        opened_intake(store) as door,
        opened_intake(other) as next_door,
    ):
        listening = asyncio.create_task(postgres.listen_for_work(store))

        async def look():
            async with store.read() as tx:
                await tx.run(sa.text("SELECT pg_sleep(0.1)"))

        await asyncio.gather(*(look() for _ in range(6)))  # so many connections are there
        network.swallow()
        with pytest.raises(StoreUnavailable, match=r"no answer for 0\.5 s"):
            await door.put(Incoming(guid="1", event="star", body=b"{}"))
        for number in range(8):
            assert await door.put(Incoming(guid=f"then {number}", event="star", body=b"{}"))
        await asyncio.sleep(2)
        store.work_waiting.clear()
        for number in itertools.count():  # until it hears again
            await next_door.put(Incoming(guid=f"elsewhere {number}", event="star", body=b"{}"))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(store.work_waiting.wait(), 1)
                break
            assert number < PATIENCE
        assert store._engine.pool.checkedout() == 1
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert store._engine.pool.checkedout() == 0
    server.close()
    await asyncio.wait_for(asyncio.gather(*network.passing), PATIENCE)
