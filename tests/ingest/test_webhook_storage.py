"""What becomes of a delivery the door lets in? Stored once, handled or said why not; never acknowledged unstored."""

import asyncio
import contextlib
import json
import os
import sqlite3
import stat
import time

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from bot.ingest import deliveries, inbox
from tests.db.opened import opened_intake
from tests.older_bodies import OLDER, as_stored_before
from tests.oot.reports.reporting import OPENED
from tests.serving import POSTGRES, SQLITE

ADMIN = {"Authorization": "Bearer an admin token of ours"}
# name: the body -> the issue's columns that it must come to
ODD_BUT_TAKEN = {
    "the same name twice: the last counts": (
        b'{"issue": {"id": 7, "number": 1, "title": "old", "title": "new"}, "repository": {"id": 5}}',
        {"title": "new"},
    ),
    "500 lists in one another": (
        b'{"issue": {"id": 7, "number": 1, "title": "deep", "x": ' + b"[" * 500 + b"]" * 500
        + b'}, "repository": {"id": 5}}',
        {"title": "deep"},
    ),
    "numbers beyond 64 bits": (
        b'{"issue": {"id": 7, "number": 1, "title": "huge", "comments": 1' + b"0" * 30
        + b'}, "repository": {"id": 5}, "installation": {"id": 99999999999999999999}}',
        {"title": "huge", "comments": None},
    ),
    "members of other types": (
        (
            b'{"action": [], "issue": {"id": 7, "number": 1, "title": {"a": 1}, "labels": 3, "user": "x"},'
            b' "repository": {"id": 5, "full_name": 3}, "installation": []}'
        ),
        {"title": None, "labels": None, "user_login": None},
    ),
    "NUL in a title": (
        b'{"issue": {"id": 7, "number": 1, "title": "a\\u0000b"}, "repository": {"id": 5, "full_name": "o/\\u0000r"}}',
        {"title": "ab"},
    ),
    "fields nobody knows yet": (
        b'{"issue": {"id": 7, "number": 1, "title": "new", "mood": {}}, "repository": {"id": 5}, "more": []}',
        {"title": "new"},
    ),
}  # fmt: skip


async def test_odd_bodies_are_kept_as_they_came_and_handled(bot):
    wrong = {}
    for number, (name, (written, expected)) in enumerate(ODD_BUT_TAKEN.items()):
        body = written.replace(b'"id": 7', b'"id": %d' % number)
        assert (await bot.send("issues", None, guid=f"odd-{number}", body=body))[0] == 202, name
        await bot.settle()
        (delivery,) = [row for row in await bot.rows("delivery") if row["guid"] == f"odd-{number}"]
        found = [row for row in await bot.rows("issue") if row["id"] == number]
        values = [{column: row[column] for column in expected} for row in found]
        kept = await bot.body(f"odd-{number}")
        if (delivery["state"], values, kept) != ("handled", [expected], body):
            wrong[name] = (delivery["state"], delivery["error"], values)
    assert wrong == {}


async def test_odd_members_of_lists_that_are_kept_whole_are_dropped(bot):
    job = (
        b'{"workflow_job": {"id": 1, "run_id": 2, "run_attempt": 1, "name": "build", "status": "queued", "steps": ['
        b'{"name": "a\\u0000b", "number": 1'
        + b"0"
        * 30
        + b'}, {"name": "c", "number": 9223372036854775807}]},'
        b' "repository": {"id": 5, "full_name": "o/r"}}'
    )
    assert (await bot.send("workflow_job", None, body=job))[0] == 202
    await bot.settle()
    (row,) = await bot.rows("workflow_job")
    assert row["steps"] == [{"name": "ab", "number": None}, {"name": "c", "number": 2**63 - 1}]


async def test_a_body_that_cannot_be_an_issue_is_parked_and_the_others_are_handled(bot):
    for guid, payload in (("bad", {"issue": {"id": "seven"}}), ("good", OPENED)):
        assert (await bot.send("issues", payload, guid=guid))[0] == 202
    await bot.settle()
    states = {row["guid"]: row["state"] for row in await bot.rows("delivery")}
    assert states == {"bad": "parked", "good": "handled"}


@pytest.mark.logic
async def test_an_event_nobody_handles_is_kept_and_ignored(bot):
    assert (await bot.send("marketplace_purchase", {"action": "purchased"}))[0] == 202
    await bot.settle()
    (row,) = await bot.rows("delivery")
    assert (row["state"], row["event"]) == ("ignored", "marketplace_purchase")


async def test_a_delivery_for_another_app_is_stored_as_foreign_and_never_handled(bot):
    for target in ("999999", "nobody", "9" * 40):
        headers = {"X-GitHub-Hook-Installation-Target-ID": target}
        assert (await bot.send("issues", OPENED, headers=headers))[0] == 202
    await bot.settle()
    assert {row["state"] for row in await bot.rows("delivery")} == {"foreign"}
    assert await bot.rows("issue") == []
    ours = {"X-GitHub-Hook-Installation-Target-ID": str(bot.app.app_id)}
    assert (await bot.send("issues", OPENED, headers=ours))[0] == 202
    await bot.settle()
    assert len(await bot.rows("issue")) == 1


# the same event's copy for another App or a repository
ELSEWHERE = {"X-GitHub-Hook-Installation-Target-ID": "999999"}


async def test_another_apps_copy_of_an_event_does_not_stand_in_for_ours(bot):
    ours = {"X-GitHub-Hook-Installation-Target-ID": str(bot.app.app_id)}
    copy = {"repository": {"id": 5}, "a": "copy"}
    for order, headers in (("before", (ELSEWHERE, ours, ELSEWHERE)), ("after", (ours, ELSEWHERE, ours))):
        for sent in headers:
            body = OPENED if sent is ours else copy
            assert (await bot.send("issues", body, guid=order, headers=sent))[0] == 202
            bot.clock.advance(60)
    await bot.settle()
    found = {
        row["guid"]: (row["state"], row["app_id"], json.loads(await bot.body(row["guid"])))
        for row in await bot.rows("delivery")
    }
    assert found == dict.fromkeys(("before", "after"), ("handled", bot.app.app_id, OPENED))
    assert len(await bot.rows("issue")) == 1


async def test_our_own_delivery_is_new_to_us_after_another_apps_copy_and_a_duplicate_after_itself(bot):
    new = {"ok": True, "delivery": "g-3"}
    again = new | {"duplicate": True}
    for headers, answer in ((ELSEWHERE, new), (ELSEWHERE, again), ({}, new), (ELSEWHERE, again), ({}, again)):
        assert (await bot.send("issues", OPENED, guid="g-3", headers=headers))[1] == answer
    await bot.settle()
    status, _ = await bot.request("POST", "/api/admin/deliveries/g-3/replay", headers=ADMIN)
    assert status == 202


async def test_of_many_copies_at_the_same_moment_ours_is_the_one_that_is_handled(bot):
    sent = [({}, OPENED), *[(ELSEWHERE, {"a": "copy"})] * 20, *[({}, OPENED)] * 9]
    answers = await asyncio.gather(
        *(bot.send("issues", body, guid="g-4", headers=headers) for headers, body in sent)
    )
    assert {status for status, _ in answers} == {202}
    await bot.settle()
    assert [row["state"] for row in await bot.rows("delivery")] == ["handled"]
    assert json.loads(await bot.body("g-4")) == OPENED


@pytest.mark.parametrize("codec", OLDER)
async def test_our_own_delivery_after_another_apps_copy_in_an_older_form_is_read_as_it_came(bot, codec):
    await bot.send("issues", {"a": "copy"}, guid="g-5", headers=ELSEWHERE)
    await bot.settle()
    await as_stored_before(bot, codec)
    assert json.loads(await bot.body("g-5")) == {"a": "copy"}
    await bot.send("issues", OPENED, guid="g-5")
    await bot.settle()
    assert [row["state"] for row in await bot.rows("delivery")] == ["handled"]
    assert len(await bot.rows("issue")) == 1


async def test_the_same_delivery_again_is_acknowledged_as_a_duplicate(bot):
    assert await bot.send("issues", OPENED, guid="g-1") == (202, {"ok": True, "delivery": "g-1"})
    for _ in range(2):
        again = await bot.send("issues", OPENED, guid="g-1")
        assert again == (202, {"ok": True, "delivery": "g-1", "duplicate": True})
        await bot.settle()
    assert len(await bot.rows("delivery")) == 1


async def test_of_many_at_the_same_moment_exactly_one_is_new(bot):
    answers = await asyncio.gather(*(bot.send("issues", OPENED, guid="g-2") for _ in range(30)))
    assert {status for status, _ in answers} == {202}
    assert sum("duplicate" not in answer for _, answer in answers) == 1
    assert len(await bot.rows("delivery")) == 1


@contextlib.contextmanager
def locked(path):
    """Another process holds the lock of a SQLite file."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


@contextlib.contextmanager
def in_the_way(path):
    """Nobody can write to a file of that name."""
    path.unlink(missing_ok=True)
    path.mkdir()
    yield
    path.rmdir()


@SQLITE
async def test_a_spool_that_cannot_be_written_is_said_and_got_over(bot, settings):
    assert (await bot.send("issues", OPENED, guid="before"))[0] == 202
    await bot.settle()
    with in_the_way(settings.data_dir / "ootbot.db.spool"):
        sent = (bot.send("issues", OPENED, guid=f"during-{n}") for n in range(3))
        for status, answer in await asyncio.gather(*sent):
            assert (status, answer["error"]) == (503, "store_unavailable")
            assert "again" in answer["detail"]
    assert [row["guid"] for row in await bot.rows("delivery")] == ["before"]
    again = await bot.send("issues", OPENED, guid="during-1")
    assert again == (202, {"ok": True, "delivery": "during-1"})


@SQLITE
async def test_all_are_stored_once_while_the_spool_is_moved_all_the_time_and_the_disk_is_slow(
    bot, monkeypatch
):
    write = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda *given: (time.sleep(0.02), write(*given))[1])
    moving = asyncio.Event()

    async def move():
        while not moving.is_set():
            await bot.context.intake.move_arrived()

    mover = asyncio.create_task(move())
    statuses = [(await bot.send("ping", {}, guid=f"of-{number}"))[0] for number in range(30)]
    moving.set()
    await mover
    assert statuses == [202] * 30
    assert len([row for row in await bot.rows("delivery") if row["guid"].startswith("of-")]) == 30


@SQLITE
async def test_deliveries_do_not_wait_for_the_databases_lock(bot, settings):
    with locked(settings.data_dir / "ootbot.db"):
        assert (await bot.send("issues", OPENED, guid="during"))[0] == 202
        again = await bot.send("issues", OPENED, guid="during")
        assert again == (202, {"ok": True, "delivery": "during", "duplicate": True})
    await bot.settle()
    assert [(row["guid"], row["state"]) for row in await bot.rows("delivery")] == [("during", "handled")]


@SQLITE
async def test_a_spool_that_was_taken_away_is_made_again(bot, settings):
    assert (await bot.send("issues", OPENED, guid="before"))[0] == 202
    (settings.data_dir / "ootbot.db.spool").rename(settings.data_dir / "away")
    assert (await bot.send("issues", OPENED, guid="during"))[0] == 202
    await bot.settle()
    assert sorted(row["guid"] for row in await bot.rows("delivery")) == ["during"]


@SQLITE
async def test_what_a_crash_left_in_the_spool_is_moved_once(bot, settings):
    """A crash after the move, before the spool forgot: the same deliveries are in both."""
    for guid in ("one", "two"):
        assert (await bot.send("issues", OPENED, guid=guid))[0] == 202
    spool = settings.data_dir / "ootbot.db.spool"
    kept = spool.read_bytes()
    await bot.settle()
    spool.write_bytes(kept)
    assert await bot.context.intake.arrived() == (2, bot.clock.now())
    await bot.settle()
    assert [(row["guid"], row["attempts"]) for row in await bot.rows("delivery")] == [("one", 1), ("two", 1)]
    assert await bot.context.intake.arrived() == (0, None)


@SQLITE
async def test_processes_that_take_turns_at_the_spool_leave_nothing_and_take_nothing_twice(bot):
    """A worker stores what it handles itself; a page that needs the newest moves the rest meanwhile."""
    worker, sent = bot.context.intake, 0

    async def arrive(count):
        nonlocal sent
        for _ in range(count):
            sent += 1
            assert (await bot.send("issues", OPENED, guid=f"g{sent:02}"))[0] == 202

    async def some_of_it():
        async with worker.arrived_next(1) as rows, bot.store.transaction() as tx:
            stored = await inbox.to_stored_rows(rows)
            return [one["guid"] for one in await deliveries.store_arrivals(tx, rows, stored, {"issues"})]

    async with opened_intake(bot.store) as page:
        await arrive(3)
        assert await some_of_it() == ["g01"]
        assert await page.move_arrived() == 2  # and the file is gone that the worker was in the middle of
        await arrive(2)
        assert await some_of_it() == ["g04"]
        await arrive(1)
        assert await some_of_it() == ["g05"]
        assert await some_of_it() == ["g06"]
        assert await some_of_it() == []
    states = {row["guid"]: row["state"] for row in await bot.rows("delivery")}
    assert states == {f"g{n:02}": "stored" if n in {2, 3} else "handled" for n in range(1, 7)}


@SQLITE
async def test_what_could_not_be_stored_by_the_worker_stays_in_the_spool(bot):
    assert (await bot.send("issues", OPENED, guid="one"))[0] == 202

    async def fail():
        async with bot.context.intake.arrived_next(1) as rows, bot.store.transaction() as tx:
            await deliveries.store_arrivals(tx, rows, await inbox.to_stored_rows(rows), {"issues"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    await bot.settle()
    assert [(row["guid"], row["state"]) for row in await bot.rows("delivery")] == [("one", "handled")]


@SQLITE
async def test_what_a_crash_left_half_moved_is_moved_before_the_rest(bot, settings):
    for guid in ("one", "two"):
        assert (await bot.send("issues", OPENED, guid=guid))[0] == 202
    spool = settings.data_dir / "ootbot.db.spool"
    spool.rename(settings.data_dir / "ootbot.db.spool.moving")
    assert (await bot.send("issues", OPENED, guid="three"))[0] == 202
    assert (await bot.context.intake.arrived())[0] == 3
    await bot.settle()
    assert [row["guid"] for row in await bot.rows("delivery")] == ["one", "two", "three"]
    assert list(settings.data_dir.glob("*.spool*")) == [settings.data_dir / "ootbot.db.spool.lock"]


@SQLITE
@pytest.mark.parametrize("kept", [1, 20, 30, 100])
async def test_a_record_that_was_not_written_to_its_end_is_skipped(bot, settings, kept):
    """A full disk, or a power cut: it was not acknowledged, and others were written behind it."""
    for guid in ("one", "torn"):
        assert (await bot.send("issues", OPENED, guid=guid))[0] == 202
        if guid == "one":
            whole = (settings.data_dir / "ootbot.db.spool").stat().st_size
    os.truncate(settings.data_dir / "ootbot.db.spool", whole + kept)
    assert (await bot.send("issues", OPENED, guid="two"))[0] == 202
    await bot.settle()
    assert [row["guid"] for row in await bot.rows("delivery")] == ["one", "two"]


@SQLITE
async def test_only_its_owner_may_read_the_spool(bot, settings):
    await bot.send("issues", OPENED)
    assert stat.S_IMODE((settings.data_dir / "ootbot.db.spool").stat().st_mode) == 0o600


@POSTGRES
async def test_a_postgresql_that_went_away_is_said_and_got_over(bot, database_url, postgres_server):
    assert (await bot.send("issues", OPENED, guid="before"))[0] == 202
    name = sa.engine.make_url(database_url).database
    kick = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    await as_administrator(postgres_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false", kick)
    for _ in range(3):
        status, answer = await bot.send("issues", OPENED, guid="during")
        assert (status, answer["error"]) == (503, "store_unavailable")
    await as_administrator(postgres_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    await taken_in_the_end(bot, "during")
    await as_administrator(postgres_server, kick)
    await taken_in_the_end(bot, "after")
    assert sorted([row["guid"] for row in await bot.rows("delivery")]) == ["after", "before", "during"]


async def taken_in_the_end(bot, guid):
    """Deliver until it is taken: connections that broke meanwhile are found one by one."""
    for _ in range(20):
        status, answer = await bot.send("issues", OPENED, guid=guid)
        if status == 202:
            break
        assert (status, answer["error"]) == (503, "store_unavailable")
    assert (status, answer) == (202, {"ok": True, "delivery": guid})


async def as_administrator(server, *statements):
    engine = create_async_engine(
        server.replace("postgresql://", "postgresql+asyncpg://"), isolation_level="AUTOCOMMIT"
    )
    async with engine.connect() as conn:
        for statement in statements:
            await conn.execute(sa.text(statement))
    await engine.dispose()
