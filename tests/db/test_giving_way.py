"""SQLite's statements run in the loop's thread: do others in the loop get to run beside many of them?"""

import asyncio
import time

import pytest
import sqlalchemy as sa

from bot.db.installation import secret
from tests.db.opened import opened

READS = 2_000


@pytest.fixture(params=[False, True], ids=["in a thread", "inline"])
async def store(request, tmp_path, clock):
    url = f"sqlite:///{tmp_path / 'ootbot.db'}"
    async with opened(url, clock, busy_timeout=60, inline=request.param) as made:
        yield made


async def one_transaction_each(store):
    for _ in range(READS):
        async with store.read() as tx:
            await tx.rows(sa.select(secret.c.name))


async def one_transaction(store):
    async with store.read() as tx:
        for _ in range(READS):
            await tx.rows(sa.select(secret.c.name))


@pytest.mark.parametrize("read", [one_transaction_each, one_transaction])
async def test_reads_in_a_row_let_the_rest_of_the_loop_run(store, read):
    turns, ended = 0, asyncio.Event()

    async def others():
        nonlocal turns
        while not ended.is_set():
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.create_task(others())
    await asyncio.sleep(0)
    began, before = time.monotonic(), turns
    await read(store)
    took = time.monotonic() - began
    ended.set()
    await beside
    assert turns - before >= took / 0.1  # every 10 ms, or later where the machine is busy
