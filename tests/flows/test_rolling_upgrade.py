"""May an older version go on while a newer one has migrated the database? Yes, unless the migration says no."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from bot.app import make_context
from bot.core.errors import Misconfigured
from bot.db import migrate
from bot.db.rows import metadata
from tests.harness import L3, L4, UPSTREAM, make_settings, running
from tests.pooler import PROGRAM, pooler
from tests.process import PATIENCE, Process, options_for
from tests.serving import POSTGRES


async def migrate_later(store, *also):
    """What a later version may do: new columns in every table, a new table, a new index."""
    added = [
        f"ALTER TABLE {name} ADD COLUMN invented_later TEXT NOT NULL DEFAULT 'x'" for name in metadata.tables
    ]
    added += [
        "CREATE TABLE invented_later (id INTEGER PRIMARY KEY, words TEXT)",
        "CREATE INDEX ix_invented_later ON delivery (invented_later, received_at)",
        "UPDATE alembic_version SET version_num = '9999'",
    ]
    async with store.transaction() as tx:
        for statement in (*added, *also):
            await tx.run(sa.text(statement))


async def story(bot, github):
    """A pull request to its verdict, and the pages about it."""
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L4)
    assert dispatch.client_payload["payload"]["pull_request"]["head"]["sha"] == pull.head_sha
    assert (await bot.report(dispatch, status="in_progress"))[0] == 200
    assert (await bot.report(dispatch, conclusion="failure", failed_tests=[{"name": "t"}]))[0] == 200
    await bot.settle(horizon=30)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")
    for path in (
        "/oot",
        "/readyz",
        f"/{UPSTREAM}/pull/{pull.number}",
        f"/api/records/pull_request/{UPSTREAM}/1",
    ):
        assert (await bot.get(path))[0] == 200, path


@pytest.mark.logic
async def test_a_running_version_survives_what_a_later_one_adds(bot, github, clock):
    await story(bot, github)
    await migrate_later(bot.store)
    await story(bot, github)
    await bot.wait(3700)  # all of the timetable, too
    assert [row["error"] for row in await bot.rows("task") if row["state"] == "dead"] == []


@pytest.mark.logic
async def test_a_version_that_starts_beside_a_later_one_works(settings, github, issuer, clock):
    async with make_context(settings, clock=clock) as context:
        await migrate_later(context.store)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await story(bot, github)
        rows = await bot.rows("delivery")
        assert rows
    assert await opened(settings, clock) == "9999"


async def test_a_migration_may_end_the_time_of_older_versions(settings, clock, tmp_path, app_key):
    async with make_context(settings, clock=clock) as context:
        await migrate_later(context.store, "UPDATE schema_support SET oldest = '9999'")
    with pytest.raises(Misconfigured, match="run the newer ootbot"):
        async with make_context(settings, clock=clock):
            pass
    database = {"DATABASE_URL": settings.database_url} if settings.database_url else {}
    process = Process(tmp_path, **options_for(tmp_path, private_key=app_key) | database)
    await process.start()
    assert await asyncio.wait_for(process.ended(), PATIENCE) == 2
    assert "9999" in process.said[-1]


@POSTGRES
async def test_a_migration_that_the_others_are_in_the_way_of_is_tried_again(settings, clock):
    other = create_async_engine(settings.database_url.replace("postgresql://", "postgresql+asyncpg://"))
    async with other.connect() as emptying:
        await emptying.execute(sa.text("DROP SCHEMA public CASCADE"))
        await emptying.execute(sa.text("CREATE SCHEMA public"))
        await emptying.commit()
    async with other.connect() as busy, other.connect() as looking:
        await busy.execute(sa.text("CREATE TABLE delivery (id integer)"))
        starting = asyncio.create_task(opened(settings, clock))
        waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        while not (await looking.execute(waiting)).scalar():  # noqa: ASYNC110 - locks have no event
            await asyncio.sleep(0.01)  # the migration comes to what the other holds
        await busy.execute(sa.text(f"SELECT pg_advisory_xact_lock({migrate.STARTUP_LOCK})"))
        await busy.rollback()
        assert await asyncio.wait_for(starting, PATIENCE) == migrate.head()
    await other.dispose()


async def opened(settings, clock):
    """Start, and return which version the database is at."""
    async with make_context(settings, clock=clock) as context, context.store.read() as tx:
        return (await tx.run(sa.text("SELECT version_num FROM alembic_version"))).scalar()


# Does the bot work behind PgBouncer in transaction mode, as docs/operations.md says?


@pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed")
@POSTGRES
async def test_a_pull_request_is_dispatched_and_reported_through_a_pooler(
    github, issuer, clock, tmp_path, database_url
):
    with pooler(database_url) as through:
        settings = make_settings(
            github=github, issuer=issuer, app=github.app, folder=tmp_path, database_url=through
        )
        async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
            pull = await github.open_pull(UPSTREAM)
            await bot.settle()
            status, _ = await bot.report(bot.dispatch(L3), status="completed", conclusion="success")
            assert status == 200
            await bot.settle()
            _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
            assert L3 in page
            status, ready = await bot.get("/readyz")
            assert (status, ready["notes"]) == (200, [])
