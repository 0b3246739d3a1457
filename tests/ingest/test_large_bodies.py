"""Large bodies are read a few at a time, and none is left behind."""

from __future__ import annotations

import pytest

from bot.ingest import archive, inbox
from bot.ingest.archive import Selection
from bot.ingest.inbox import Incoming
from tests.db.opened import opened, opened_intake

MIB = 1024 * 1024
LARGE = 9 * MIB
MOST = 32 * MIB  # a few of them


@pytest.fixture
async def store(migrated_url, clock):
    """Two deliveries of 100 bytes, seven of 9 MiB between them."""
    async with opened(migrated_url, clock) as made, opened_intake(made) as intake:
        for number, size in enumerate([100, *[LARGE] * 7, 100]):
            await intake.put(Incoming(guid=f"g{number}", event="push", body=bytes([65 + number]) * size))
        await intake.move_arrived()
        yield made


async def all_in_parts(store, part):
    """What comes of taking one part after the other, and the most bytes of one."""
    found, most = [], 0
    while taken := await part(found):
        most = max(most, sum(len(body) for _, body in taken))
        found += taken
    return sorted(found), most


async def handled(store):
    async with store.transaction() as tx:
        taken = await inbox.claim(tx, limit=100)
        await inbox.settle(tx, taken, "handled")
        return [(one.guid, one.body) for one in taken]


EXPECTED = [
    (f"g{number}", bytes([65 + number]) * (100 if number in {0, 8} else LARGE)) for number in range(9)
]


@pytest.mark.logic
async def test_large_deliveries_are_handled_a_few_at_a_time_and_small_ones_at_once(store):
    first = await handled(store)
    assert {"g0", "g8"} < {guid for guid, _ in first}
    rest, most = await all_in_parts(store, lambda _: handled(store))
    assert sorted(first + rest) == EXPECTED
    assert max(most, sum(len(body) for _, body in first)) <= MOST


async def test_large_deliveries_are_replayed_and_compressed_a_few_at_a_time(store, clock):
    async def replayed(found):
        async with store.read() as tx:
            page = await archive.page(tx, Selection(), after=len(found), limit=100)
        return [(one.guid, one.body) for one in page]

    found, most = await all_in_parts(store, replayed)
    assert found == EXPECTED
    assert most <= MOST
    while await handled(store):
        clock.advance(1)
    async with store.read() as tx:
        plain = await archive.uncompressed(tx, since=0, before=clock.now() + 1, limit=100)
    assert 0 < sum(len(row["body"]) for row in plain) <= MOST
