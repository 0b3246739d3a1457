"""SQLite's statements run in the calling thread or in another: is a transaction what it says, and do others get to run?"""

import asyncio
import contextlib
import sqlite3
import time

import pytest
import sqlalchemy as sa

from bot.core.errors import StoreUnavailable
from bot.db.installation import secret
from tests.db.opened import opened

ADD = sa.insert(secret).values(value=b"x")
_first = sa.select(sa.literal(1).label("i")).cte("number", recursive=True)
_numbers = _first.union_all(sa.select(_first.c.i + 1).where(_first.c.i < sa.bindparam("most")))
COUNT = sa.select(sa.func.count()).select_from(_numbers)  # takes as long as one wants


@pytest.fixture(params=[False, True], ids=["in a thread", "inline"])
async def store(request, tmp_path, clock):
    url = f"sqlite:///{tmp_path / 'ootbot.db'}"
    async with opened(url, clock, busy_timeout=60, inline=request.param) as made:
        yield made


@pytest.fixture
def other(store):
    """Another process on the same file, which waits for nobody."""
    with contextlib.closing(sqlite3.connect(store.url.database, isolation_level=None, timeout=0)) as made:
        yield made


async def names(store):
    async with store.read() as tx:
        return sorted(row["name"] for row in await tx.rows(sa.select(secret.c.name)))


@pytest.mark.parametrize("store", [False], indirect=True)
async def test_a_transaction_given_up_while_it_waits_for_another_process_leaves_nothing_locked(store, other):
    async def write():
        async with store.transaction() as tx:
            await tx.run(ADD, {"name": "given up"})

    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(write())
    await asyncio.wait([waiting], timeout=0.2)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting], timeout=0.2)
    other.execute("ROLLBACK")
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    async with store.transaction() as tx:
        await tx.run(ADD, {"name": "kept"})
    other.execute("BEGIN IMMEDIATE")
    other.execute("ROLLBACK")
    assert await names(store) == ["kept"]


async def test_others_do_not_write_between_what_is_read_and_what_is_written_of_it(store, other):
    async with store.transaction() as tx:
        assert await tx.rows(sa.select(secret.c.name)) == []
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("INSERT INTO secret VALUES ('b', x'00')")
        await tx.run(ADD, [{"name": "a"}, {"name": "c"}])
    assert await names(store) == ["a", "c"]


async def test_rows_read_in_parts_are_those_of_one_moment(store, other):
    async with store.transaction() as tx:
        await tx.run(ADD, [{"name": f"{number}"} for number in range(5)])
    async with store.read() as tx:
        found = []
        async for part in tx.slices(sa.select(secret.c.name), size=2):
            found += part
            other.execute("DELETE FROM secret")
    assert len(found) == 5
    assert await names(store) == []


async def test_a_statement_that_fails_leaves_the_transaction_whole(store):
    async with store.transaction() as tx:
        for name in ("a", "b"):
            await tx.run(ADD, {"name": name})
            with pytest.raises(sa.exc.IntegrityError):  # left to SQLAlchemy, then run by the driver itself
                async with tx.attempt():
                    await tx.run(ADD, {"name": name})
        await tx.run(ADD, {"name": "c"})
    assert await names(store) == ["a", "b", "c"]


async def test_a_transaction_without_a_statement_disturbs_nobody(store, other):
    async with store.transaction():
        other.execute("INSERT INTO secret VALUES ('a', x'00')")
    assert await names(store) == ["a"]


@pytest.mark.parametrize("inline", [False, True])
async def test_what_keeps_the_file_locked_is_told_at_the_first_statement(
    tmp_path, clock, store, other, inline
):
    url = f"sqlite:///{tmp_path / 'ootbot.db'}"
    async with opened(url, clock, busy_timeout=0.01, inline=inline) as hurried:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="end whatever else holds it"):
            async with hurried.transaction() as tx:
                await tx.run(ADD, {"name": "a"})
    other.execute("ROLLBACK")
    assert await names(store) == []


@pytest.mark.parametrize("store", [False], indirect=True)
async def test_a_long_read_keeps_nobody_waiting_and_leaves_its_transaction_whole(store):
    passed = []

    async def passing():
        while True:
            passed.append(None)
            await asyncio.sleep(0)

    others = asyncio.create_task(passing())
    async with store.transaction() as tx:
        await tx.run(ADD, {"name": "a"})
        before = len(passed)
        assert (await tx.run(COUNT, {"most": 300_000})).scalar() == 300_000
        assert len(passed) > before
        await tx.run(ADD, {"name": "b"})
    others.cancel()
    assert await names(store) == ["a", "b"]


@pytest.mark.parametrize("store", [False], indirect=True)
async def test_a_short_read_is_over_before_anybody_else_gets_to_run(store):
    ran = []
    async with store.read() as tx:
        asyncio.get_running_loop().call_soon(ran.append, "another")
        assert (await tx.run(COUNT, {"most": 10})).scalar() == 10
        assert not ran


@pytest.mark.parametrize("store", [False], indirect=True)
async def test_whoever_gives_up_a_statement_waits_for_its_end(store):
    async def write():
        async with store.transaction() as tx:
            await tx.run(ADD, {"name": "given up"})
            await tx.run(COUNT, {"most": 300_000})
            await tx.run(ADD, {"name": "never asked for"})

    writing = asyncio.create_task(write())
    await asyncio.wait([writing], timeout=0.001)
    for _ in range(3):
        writing.cancel()
        await asyncio.sleep(0)
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    async with store.transaction() as tx:
        await tx.run(ADD, {"name": "kept"})
    assert await names(store) == ["kept"]


READS = 2_000


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
