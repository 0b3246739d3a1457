"""Is an acknowledged delivery ever lost, or done twice? `ootbot serve` under load, killed at random moments.

Each start is a fork of a process that has imported the program; everything else is what an operator runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
import sqlalchemy as sa

from bot.clock import SystemClock
from bot.store import Store
from tests.harness import SECRET, UPSTREAM, sign
from tests.process import ROOT, options_for, until
from tests.serving import SQLITE

CONNECTIONS = 8
LONGEST = 0.25  # seconds from a bot's answer to its end; some end before they answer
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


class Nursery:
    """Starts a bot again and again on the same data and port."""

    def __init__(self, folder: Path, options: dict[str, str]):
        environ = {name: value for name, value in os.environ.items() if not name.startswith("OOTBOT_")}
        self._environ = environ | {f"OOTBOT_{name}": value for name, value in options.items()}
        self._folder = folder
        self._reading: asyncio.Task | None = None
        self.pid = 0
        self.url = ""
        self.answers, self.ended = asyncio.Event(), asyncio.Event()
        self.said: list[str] = []

    async def open(self):
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(ROOT / "tests" / "nursery.py"), cwd=self._folder, env=self._environ,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read())

    async def _read(self):
        async for line in self._process.stdout:
            words = line.decode().split()
            if words[:1] == ["started"]:
                self.pid = int(words[1])
            elif words[:1] == ["ended"]:
                self.ended.set()
            elif words[:1] == ["ootbot"]:
                self.url = words[3].removesuffix("/oot")
                self.answers.set()
            else:
                self.said.append(line.decode().rstrip())

    def start(self):
        self.pid = 0
        self.answers.clear()
        self.ended.clear()
        self._process.stdin.write(b"start\n")

    async def kill(self):
        """SIGKILL, and wait for the end."""
        await until(lambda: self.pid, what="a process")
        self.answers.clear()
        os.kill(self.pid, signal.SIGKILL)
        await self.ended.wait()

    async def close(self):
        if self.pid and not self.ended.is_set():
            await self.kill()
        self._process.stdin.close()
        await self._process.wait()
        await self._reading


class Load:
    """GitHub on several connections: what got no answer is sent again under its GUID."""

    def __init__(self, nursery, http):
        self._nursery, self._http = nursery, http
        self._numbers = itertools.count(1)
        self.acknowledged: set[str] = set()
        self.unanswered = 0
        self.wrong: list[str] = []
        self.over = asyncio.Event()

    async def connection(self):
        while not self.over.is_set():
            number = next(self._numbers)
            while not await self._deliver(number):
                self.unanswered += 1
                await until(self._nursery.answers.is_set, what="a bot that answers")

    async def _deliver(self, number):
        """Send one; returns whether there was an answer."""
        body = labeled(number)
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": "issues",
            "X-GitHub-Delivery": f"g-{number}",
            "X-Hub-Signature-256": sign(body, SECRET),
        }
        url = f"{self._nursery.url}/api/github/webhooks"
        with contextlib.suppress(aiohttp.ClientError):
            async with self._http.post(url, data=body, headers=headers) as answer:
                if answer.status == 202:
                    self.acknowledged.add(f"g-{number}")
                elif answer.status != 503:
                    self.wrong.append(await answer.text())
                return answer.status == 202
        return False


def labeled(number):
    """An issue of its own gets a label: two records."""
    at = "2026-01-02T03:04:05Z"
    payload = {
        "action": "labeled",
        "issue": {"id": number, "number": number, "title": "It is slow", "created_at": at, "updated_at": at},
        "label": {"id": 1, "name": "bug"},
        "repository": {"id": 5, "full_name": UPSTREAM, "private": False, "padding": "x" * 4_000},
    }
    return json.dumps(payload).encode()


@contextlib.asynccontextmanager
async def loaded(nursery):
    """A load on the bot, from its first answer on."""
    await until(nursery.answers.is_set, what="a bot that answers")
    async with aiohttp.ClientSession() as http:
        load = Load(nursery, http)
        sending = [asyncio.create_task(load.connection()) for _ in range(CONNECTIONS)]
        yield load
        load.over.set()
        await asyncio.gather(*sending)


async def survive(folder, database_url, private_key, kills, seed):
    """Kill the bot that many times under load, let it finish at last; returns the load and all stored rows."""
    chance = random.Random(seed)
    port = {"PORT": "0", "DATA_DIR": str(folder), "LOG_LEVEL": "error"}
    database = {"DATABASE_URL": database_url} if database_url else {}
    nursery = Nursery(folder, options_for(folder, private_key=private_key) | port | database)
    store = Store(database_url or f"sqlite:///{folder / 'ootbot.db'}", clock=SystemClock())
    await nursery.open()
    try:
        nursery.start()
        async with loaded(nursery) as load:
            for _ in range(kills):
                if chance.random() < 0.9:
                    await until(nursery.answers.is_set, what="a bot that answers")
                await asyncio.sleep(chance.uniform(0, LONGEST))  # this is the load's time
                await nursery.kill()
                nursery.start()
        await everything_handled(store)
        return load, await everything(store)
    except AssertionError as error:
        error.add_note("\n".join(["the bot said:", *nursery.said[-30:]]))
        raise
    finally:
        await nursery.close()
        await store.close()


async def everything_handled(store):
    waiting = []

    async def look():
        async with store.read() as tx:
            waiting[:] = await tx.rows(
                sa.text("SELECT count(*) AS number FROM delivery WHERE state = 'stored'")
            )

    await until(lambda: waiting == [{"number": 0}], what="an empty inbox", again=look)


async def everything(store):
    queries = {
        "deliveries": "SELECT guid, state, error FROM delivery",
        "issues": "SELECT id FROM issue",
        "labels": "SELECT guid FROM issue_label_event",
    }
    async with store.read() as tx:
        found = {name: await tx.rows(sa.text(query)) for name, query in queries.items()}
        if tx.sqlite:
            found["integrity"] = (await tx.run(sa.text("PRAGMA integrity_check"))).scalar()
    return found


def check(load, found):
    states = {row["guid"]: (row["state"], row["error"]) for row in found["deliveries"]}
    assert load.wrong == []
    assert load.acknowledged - states.keys() == set()
    assert set(states.values()) == {("handled", None)}
    assert len(states) == len(found["deliveries"])
    assert sorted(f"g-{row['id']}" for row in found["issues"]) == sorted(states)
    assert sorted(row["guid"] for row in found["labels"]) == sorted(states)
    assert found.get("integrity", "ok") == "ok"


@pytest.mark.alone
async def test_a_bot_that_is_killed_under_load_loses_nothing_it_acknowledged(tmp_path, database_url, app_key):
    kills = 6 if database_url else 60
    load, found = await survive(tmp_path, database_url, app_key, kills, seed=f"ordinary {kills}")
    check(load, found)
    assert load.unanswered >= kills / 2, "the load was elsewhere when the bot was killed"
    assert len(load.acknowledged) > kills * CONNECTIONS


@pytest.mark.nightly
@pytest.mark.alone
@SQLITE
async def test_a_thousand_kills_lose_nothing(tmp_path, database_url, app_key):
    load, found = await survive(tmp_path, database_url, app_key, 1_000, seed="nightly")
    check(load, found)
    assert load.unanswered >= 500
