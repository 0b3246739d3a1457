"""Several writers at a moment: group commit with its batches, limits and errors, and transactions that are shared."""

import asyncio
import contextlib

import pytest
import sqlalchemy as sa

from bot.core.errors import RetryLater, StoreUnavailable
from bot.db.group_commit import GroupCommit
from bot.queue.tasks import task
from tests.db.opened import opened
from tests.serving import SQLITE


class Database:
    """Stores numbers by batch; a negative one breaks its batch."""

    def __init__(self):
        self.batches = []
        self.free = asyncio.Event()
        self.error = None

    async def write(self, items):
        await self.free.wait()
        if self.error:
            raise self.error
        if min(items) < 0:
            raise ValueError(f"{min(items)} is negative")
        self.batches.append([*items])
        return [2 * item for item in items]

    def group(self, *, max_items=10, max_size=1000, pause=0.0, answer_within=60.0):
        return GroupCommit(
            self.write,
            max_items=max_items,
            max_size=max_size,
            size=lambda item: item,
            pause=pause,
            answer_within=answer_within,
        )


async def put_all(group, database, *items):
    """Put the first item, then the others while it is being written; returns their results and errors."""
    first = group.put(items[0])
    await asyncio.sleep(0.01)
    others = [group.put(item) for item in items[1:]]
    await asyncio.sleep(0.01)
    database.free.set()
    return await asyncio.gather(first, *others, return_exceptions=True)


async def test_items_that_arrive_during_a_commit_share_the_next():
    database = Database()
    assert await put_all(database.group(), database, 1, 2, 3, 4) == [2, 4, 6, 8]
    assert database.batches == [[1], [2, 3, 4]]


async def test_a_lone_item_waits_for_nobody():
    database = Database()
    database.free.set()
    group = database.group(pause=3600)
    async with asyncio.timeout(60):
        assert [await group.put(1), await group.put(2)] == [2, 4]


async def test_under_load_the_next_commit_waits_for_more():
    database = Database()
    group = database.group(pause=0.2)
    await asyncio.gather(put_all(group, database, 3, 4), late(group, database))
    assert database.batches == [[3], [4, 5]]


async def late(group, database):
    """Put an item during the pause after a commit."""
    await database.free.wait()
    await asyncio.sleep(0.02)
    return await group.put(5)


async def test_small_items_overtake_a_large_one_that_does_not_fit():
    database = Database()
    await put_all(database.group(max_size=10, max_items=3), database, 99, 5, 8, 1, 2, 1)
    assert database.batches == [[99], [5, 1, 2], [8, 1]]


async def test_an_item_that_breaks_its_batch_fails_only_its_own_caller():
    database = Database()
    one, two, wrong, three = await put_all(database.group(), database, 1, 2, -1, 3)
    assert (one, two, three) == (2, 4, 6)
    assert isinstance(wrong, ValueError)
    assert database.batches == [[1], [2], [3]]


async def test_an_unavailable_database_fails_a_whole_batch_at_once():
    database = Database()
    database.error = StoreUnavailable("full")
    assert {str(one) for one in await put_all(database.group(), database, 1, 2, 3)} == {"full"}


async def test_a_caller_is_refused_in_time_and_its_waiting_item_is_not_written():
    database = Database()
    group = database.group(answer_within=0.05)
    outcomes = await asyncio.gather(group.put(1), group.put(2), return_exceptions=True)
    assert all("kept others waiting" in str(one) for one in outcomes)
    late = group.put(3)
    await asyncio.sleep(0.01)
    late.cancel()
    database.free.set()
    await group.drain()
    assert database.batches == [[1, 2]]


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
