"""Inserting what is missing and changing what is there, with statements that are built once."""

import pytest
import sqlalchemy as sa

from bot.evidence.collect.tables import ci_storage_day
from bot.jobs.tables import ci_column
from tests.db.opened import opened, url_of


@pytest.fixture
async def store(database_url, tmp_path, clock):
    async with opened(url_of(database_url, tmp_path), clock) as made:
        yield made


def day(day, *, artifacts=1, size=10):
    return {"repository_id": 1, "day": day, "workflow": "w", "artifacts": artifacts, "bytes": size}


async def written(store, *rows, **changed):
    async with store.transaction() as tx:
        await tx.upsert(ci_storage_day, rows, **changed)
    async with store.read() as tx:
        found = await tx.rows(sa.select(ci_storage_day).order_by(ci_storage_day.c.day))
    return [(row["day"], row["artifacts"], row["bytes"]) for row in found]


async def test_what_is_missing_is_inserted_and_what_is_there_changes_as_asked(store):
    assert await written(store, day(1)) == [(1, 1, 10)]
    assert await written(store, day(1, size=5), day(2)) == [(1, 1, 10), (2, 1, 10)]
    assert await written(store, day(1, artifacts=7, size=5), replaced=("bytes",)) == [(1, 1, 5), (2, 1, 10)]
    assert await written(store, day(1), day(2), added=("artifacts", "bytes")) == [(1, 2, 15), (2, 2, 20)]
    lower_and_higher = (day(1, size=14), day(2, size=21))
    assert await written(store, *lower_and_higher, greatest=("bytes",)) == [(1, 2, 15), (2, 2, 21)]
    mixed = {"replaced": ("artifacts",), "greatest": ("bytes",)}
    assert await written(store, day(2, artifacts=9, size=1), **mixed) == [(1, 2, 15), (2, 9, 21)]


async def test_another_unique_key_may_tell_which_row_it_is(store):
    row = {
        "repository_id": 1,
        "source": "actions",
        "workflow": "w",
        "job": "j",
        "base_name": "",
        "config": "",
        "flags": "",
        "seen": 3,
    }
    async with store.transaction() as tx:
        await tx.upsert(ci_column, [row])
        await tx.upsert(
            ci_column,
            [row | {"seen": 5}],
            greatest=("seen",),
            index=("repository_id", "source", "workflow", "job"),
        )
    async with store.read() as tx:
        assert [one["seen"] for one in await tx.rows(sa.select(ci_column))] == [5]


async def test_what_was_inserted_can_be_told_from_what_was_there(store):
    await written(store, day(1))
    async with store.transaction() as tx:
        done = await tx.upsert(ci_storage_day, [day(1), day(2)], returning=("day",))
        assert list(done.scalars()) == [2]
