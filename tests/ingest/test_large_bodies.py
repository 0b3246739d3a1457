"""Large bodies are read a few at a time, and none is left behind."""

import gc
import random
import tracemalloc

import pytest

from bot.ingest import inbox, retention
from bot.ingest.inbox import Incoming
from bot.ingest.retention import Selection
from tests.db.opened import opened, opened_intake

MIB = 1024 * 1024
LARGE = 9 * MIB
MOST = 32 * MIB  # a few of them
SIZES = [100, *[LARGE] * 7, 100]
DRAWN = random.Random(9)
BODIES = {f"g{number}": DRAWN.randbytes(size) for number, size in enumerate(SIZES)}  # nothing shrinks
BODIES |= {f"x{number}": b"x" * LARGE for number in range(7)}  # to a few kilobytes
TEXT = b"x" * (24 * MIB)  # shrinks to a few kilobytes


@pytest.fixture
async def store(migrated_url, clock):
    """Two deliveries of 100 bytes, and others of 9 MiB: seven that do not shrink when they are stored, seven that do."""
    async with opened(migrated_url, clock) as made, opened_intake(made) as intake:
        for guid, body in BODIES.items():
            await intake.put(Incoming(guid=guid, event="push", body=body))
        await intake.move_arrived()
        yield made


async def all_in_parts(store, part):
    """What comes of taking one part after the other, and the most bytes of one."""
    found, most = {}, 0
    while taken := await part(found):
        most = max(most, sum(map(len, taken.values())))
        found |= taken
    return found, most


async def handled(store):
    async with store.transaction() as tx:
        taken = await inbox.claim_due(tx, limit=100)
        await inbox.settle_deliveries(tx, taken, "handled")
        return {one["guid"]: inbox.read_body(one) for one in taken}


@pytest.mark.logic
async def test_large_deliveries_are_handled_a_few_at_a_time_and_small_ones_at_once(store):
    first = await handled(store)
    assert {"g0", "g8"} < first.keys()
    rest, most = await all_in_parts(store, lambda _: handled(store))
    assert first | rest == BODIES
    assert max(most, sum(map(len, first.values()))) <= MOST


async def test_large_deliveries_are_replayed_a_few_at_a_time(store):
    async def replayed(found):
        async with store.read() as tx:
            page = await retention.read_replay_page(tx, Selection(), after=len(found), limit=100)
        return {one["guid"]: inbox.read_body(one) for one in page}

    found, most = await all_in_parts(store, replayed)
    assert found == BODIES
    assert most <= MOST


@pytest.mark.logic
async def test_bodies_that_are_small_only_as_stored_are_handled_a_few_at_a_time(bot):
    """Anybody can have GitHub send a public App bodies that shrink to a thousandth, with texts that records keep."""
    for number in range(12):
        body = b'{"issue": {"id": %d, "number": 1, "body": "%b"}, "repository": {"id": 5}}' % (number, TEXT)
        assert await bot.context.intake.put(Incoming(guid=f"s{number}", event="issues", body=body))
        await bot.context.intake.move_arrived()  # to be claimed like any other
    gc.collect()
    tracemalloc.start()
    await bot.settle()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [row["state"] for row in await bot.rows("delivery")] == ["handled"] * 12
    assert most < 6 * len(TEXT)  # of which there are twelve
