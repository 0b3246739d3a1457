"""`Store.write`: what several write at the same moment, and what becomes of it where one of them fails."""

import asyncio
import contextlib

import pytest
import sqlalchemy as sa

from bot.core.errors import RetryLater, StoreUnavailable
from bot.queue.tasks import task
from tests.db.opened import opened
from tests.serving import SQLITE


@pytest.fixture
async def store(migrated_url, clock):
    async with opened(migrated_url, clock) as made:
        yield made


def asking(key):
    async def ask(tx):
        tx.enqueue("publish", key)
        return key, tx

    return ask


async def refused(tx):
    tx.enqueue("publish", "refused")
    raise RetryLater("not now")


async def keys(store):
    async with store.read() as tx:
        return sorted((await tx.run(sa.select(task.c.key))).scalars())


@contextlib.asynccontextmanager
async def writing(store):
    """Keep the only writer meanwhile."""
    async with store.writer_lock():
        yield
        await asyncio.sleep(0.01)


async def test_each_gets_its_own_result_once_it_is_stored(store):
    found = await asyncio.gather(*(store.write(asking(key)) for key in "abc"))
    assert [key for key, _ in found] == ["a", "b", "c"]
    assert await keys(store) == ["a", "b", "c"]


@SQLITE
async def test_what_comes_at_the_same_moment_shares_a_transaction(store):
    async with writing(store):
        together = [asyncio.create_task(store.write(asking(key))) for key in "abc"]
    _, *others = [tx for _, tx in await asyncio.gather(*together)]
    assert len({id(tx) for tx in others}) == 1


async def test_one_that_fails_takes_nobody_with_it(store):
    async with writing(store):
        pieces = [asking("a"), asking("b"), refused, asking("c")]
        together = [asyncio.create_task(store.write(piece)) for piece in pieces]
    found = await asyncio.gather(*together, return_exceptions=True)
    assert isinstance(found[2], RetryLater)
    assert await keys(store) == ["a", "b", "c"]


@SQLITE
async def test_a_database_that_is_away_fails_all_of_them(store, tmp_path):
    (tmp_path / "ootbot.db").rename(tmp_path / "away")
    found = await asyncio.gather(*(store.write(asking(key)) for key in "ab"), return_exceptions=True)
    (tmp_path / "away").rename(tmp_path / "ootbot.db")
    assert [type(one) for one in found] == [StoreUnavailable] * 2
    assert await keys(store) == []


@SQLITE
async def test_draining_waits_for_what_is_being_written_for_somebody_who_left(store):
    async with writing(store):
        left = asyncio.create_task(store.write(asking("a")))
        await asyncio.sleep(0.01)
        left.cancel()
    await store.drain()
    assert await keys(store) == ["a"]
