"""A task that says so rests: requests for its key gather for a moment, those for others do not wait."""

from __future__ import annotations

import asyncio
import sys

import pytest

from bot.app import make_worker
from bot.core.feature import Feature
from bot.features import FEATURES
from tests import harness
from tests.workers import NEVER, eventually

TASKS = """
import asyncio

runs = []


async def resting(context, task):
    runs.append((task.key, asyncio.get_running_loop().time()))
    return 1.5
"""


@pytest.fixture
def resting_tasks(tmp_path, monkeypatch):
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "resting_tasks.py").write_text(TASKS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "resting_tasks", raising=False)  # of the other database
    return Feature(name="resting", tasks={"resting": "resting_tasks:resting"})


async def test_requests_gather_while_a_task_rests(resting_tasks, settings, github, issuer, clock):
    features = (*FEATURES, resting_tasks)
    async with harness.running(
        settings, github=github, issuer=issuer, app=github.app, clock=clock, features=features
    ) as bot:
        import resting_tasks as module

        worker = make_worker(bot.context, poll=NEVER)
        working = asyncio.create_task(worker.run())
        try:
            await asked(bot, "a")
            await eventually(lambda: ran(module, 1), "the first run")
            for _ in range(3):
                await asked(bot, "a")
            await asked(bot, "b")
            await eventually(lambda: ran(module, 3), "the others")
        finally:
            worker.stop()
            await working
        (first, began), (other, _), (again, ended) = module.runs
        assert (first, other, again) == ("a", "b", "a")
        assert ended - began >= 1.5


async def asked(bot, key):
    async with bot.store.transaction() as tx:
        tx.enqueue("resting", key)


async def ran(module, times):
    return len(module.runs) >= times
