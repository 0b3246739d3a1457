"""Promises of the store: all or nothing, writers kept apart, one schema however it is opened."""

import asyncio
import contextlib
import sys
import time
import warnings

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from bot.core.errors import StoreUnavailable
from bot.db.installation import secret
from bot.db.rows import metadata
from tests import first_migration
from tests.db.opened import opened, url_of
from tests.serving import POSTGRES, SQLITE


@pytest.fixture
def url(database_url, tmp_path):
    return url_of(database_url, tmp_path)


@pytest.fixture
async def store(url, clock):
    async with opened(url, clock) as made:
        yield made


def keep(name, *, then=None):
    """A writer of one row; `then` is raised after it has written."""

    async def work(tx):
        await tx.run(sa.insert(secret).values(name=name, value=b"x"))
        if then:
            raise then
        return name

    return work


async def written(store, work):
    async with store.transaction() as tx:
        return await work(tx)


async def names(store):
    async with store.read() as tx:
        return sorted(row["name"] for row in await tx.rows(sa.select(secret)))


async def test_what_was_written_is_there_after_reopening(store, url, clock):
    assert await written(store, keep("a")) == "a"
    async with opened(url, clock) as again:
        assert await names(again) == ["a"]


async def test_an_error_undoes_its_transaction(store):
    with pytest.raises(ValueError, match="wrong"):
        await written(store, keep("a", then=ValueError("wrong")))
    assert await names(store) == []


async def test_a_writer_who_gave_up_harms_nobody(store):
    writing = [asyncio.create_task(written(store, keep(str(n)))) for n in range(6)]
    await asyncio.sleep(0)
    writing[0].cancel()
    writing[3].cancel()
    answers = await asyncio.gather(*writing, return_exceptions=True)
    assert [answer for answer in answers if isinstance(answer, str)] == ["1", "2", "4", "5"]
    assert await written(store, keep("afterwards")) == "afterwards"
    assert {"1", "2", "4", "5", "afterwards"} <= set(await names(store))


async def test_a_reader_sees_one_moment_and_changes_nothing(store):
    await written(store, keep("a"))
    async with store.read() as tx:
        assert len(await tx.rows(sa.select(secret))) == 1
        await written(store, keep("b"))
        assert len(await tx.rows(sa.select(secret))) == 1
    with contextlib.suppress(StoreUnavailable):
        async with store.read() as tx:
            await keep("c")(tx)
    assert await names(store) == ["a", "b"]
    await written(store, keep("d"))  # the connection that read may write again


async def test_the_schema_is_what_the_tables_say(store):
    def differences(conn):
        context = MigrationContext.configure(
            conn, opts={"compare_type": True, "compare_server_default": True}
        )
        with warnings.catch_warnings():  # on SQLite indexes of expressions are compared below
            warnings.simplefilter("ignore")
            return compare_metadata(context, metadata)

    async with store.transaction() as tx:
        assert await tx.conn.run_sync(differences) == []


async def test_the_indexes_are_what_the_tables_say(store):
    """Alembic compares no conditions, and on SQLite no expressions."""
    listing = sa.text(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name != 'alembic_version'"
        if store.sqlite
        else "SELECT indexname, replace(indexdef, current_schema || '.', '') FROM pg_indexes "
        "WHERE schemaname = current_schema AND tablename != 'alembic_version'"
    )

    def compare(conn):
        found = dict(conn.execute(listing).all())
        if store.sqlite:
            conn = engine.connect()
        else:
            conn.execute(sa.text("CREATE SCHEMA wanted"))
            conn.execute(sa.text("SET LOCAL search_path TO wanted"))
        metadata.create_all(conn)
        assert found == dict(conn.execute(listing).all())
        conn.rollback()

    engine = sa.create_engine("sqlite://")
    async with store.transaction() as tx:
        await tx.conn.run_sync(compare)
    engine.dispose()


def test_the_first_migration_is_what_the_tables_say():
    """Until the first release; after it, tables change by further migrations only."""
    assert first_migration.FILE.read_text() == first_migration.text(), "run `python3 dev.py generate`"


async def test_opening_again_changes_nothing(store, url, clock):
    await written(store, keep("a"))
    before = await schema(store)
    for _ in range(2):
        async with opened(url, clock) as again:
            assert await schema(again) == before
            assert await names(again) == ["a"]


async def schema(store):
    """Every object of the database, as the database describes it."""
    listing = (
        "SELECT type, name, sql FROM sqlite_master ORDER BY name"
        if store.sqlite
        else "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname"
    )
    async with store.read() as tx:
        return await tx.rows(sa.text(listing)), await tx.rows(sa.text("SELECT * FROM alembic_version"))


OPEN = """
import asyncio, sys
from bot.core.clock import SystemClock
from bot.db.store import Store

async def main():
    store = Store(sys.argv[1], clock=SystemClock())
    await store.open()
    await store.close()

asyncio.run(main())
"""


async def test_processes_that_open_a_new_database_at_the_same_moment_agree(url, clock):
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", OPEN, url, stderr=asyncio.subprocess.PIPE)
        for _ in range(2)
    ]
    said = await asyncio.gather(*(process.communicate() for process in processes))
    assert [process.returncode for process in processes] == [0, 0], said
    async with opened(url, clock) as store:
        assert await names(store) == []


@POSTGRES
async def test_stores_that_open_a_new_database_at_the_same_moment_agree(url, clock):
    async def once():
        async with opened(url, clock) as store:
            return await schema(store)

    first, *others = await asyncio.gather(*(once() for _ in range(4)))
    assert others == [first] * 3


@SQLITE
async def test_sqlite_survives_a_power_cut_and_waits_for_others(store):
    async with store.transaction() as tx:
        values = [
            (await tx.conn.exec_driver_sql(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]
    assert values == ["wal", 2, 5000]


@pytest.mark.nightly
@POSTGRES
async def test_silence_ends_a_transaction_and_much_work_does_not(store):
    async with store.read(answer_within=3) as tx:
        for _ in range(7):
            await tx.run(sa.text("SELECT pg_sleep(0.5)"))
    async with store.transaction(lock_timeout=0.2) as tx:
        assert await tx.row(sa.text("SELECT pg_sleep(0.9)"))

    async def ask(seconds, answer_within):
        async with store.read(answer_within=answer_within) as tx:
            await tx.run(sa.text(f"SELECT pg_sleep({seconds})"))

    began = time.monotonic()
    outcomes = await asyncio.gather(*(ask(60, 0.2) for _ in range(12)), return_exceptions=True)
    assert {type(one) for one in outcomes} == {StoreUnavailable}
    assert all("no answer for 0.2 s" in str(one) for one in outcomes)
    assert time.monotonic() - began < 30
    assert store._engine.pool.checkedout() == 0
    await asyncio.gather(*(ask(0, 30) for _ in range(12)))


@POSTGRES
async def test_a_connection_that_has_ended_is_given_to_nobody(store):
    async with store.connection(answer_within=5) as (connection, _):
        connection.terminate()
    async with store.read() as tx:
        assert await tx.row(sa.select(sa.literal(1)))
