"""A task that says so pauses, and one that failed: requests for its key gather for a moment, others do not wait."""

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

from bot.core.errors import NotYet, RetryLater

runs = []


async def pausing(context, task):
    runs.append((task.key, asyncio.get_running_loop().time()))
    if task.key == "fails":
        raise RetryLater("GitHub is away")
    if task.key == "breaks":
        raise ZeroDivisionError
    if task.key == "waits":
        raise NotYet("the run has not ended", after=60)
    return 1.5
"""


@pytest.fixture
def pausing_tasks(tmp_path, monkeypatch):
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "pausing_tasks.py").write_text(TASKS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "pausing_tasks", raising=False)  # of the other database
    return Feature(name="pausing", tasks={"pausing": "pausing_tasks:pausing"})


@pytest.fixture
async def working(pausing_tasks, settings, github, issuer, clock):
    """A bot whose worker runs, and the runs of its tasks."""
    features = (*FEATURES, pausing_tasks)
    async with harness.running(
        settings, github=github, issuer=issuer, app=github.app, clock=clock, features=features
    ) as bot:
        import pausing_tasks as module

        worker = make_worker(bot.context, poll=NEVER)
        running = asyncio.create_task(worker.run())
        try:
            yield bot, module
        finally:
            worker.stop()
            await running


@pytest.mark.logic
@pytest.mark.parametrize(("key", "pause"), [("a", 1.5), ("fails", 1.0), ("breaks", 1.0)])
async def test_requests_gather_while_a_task_pauses(working, key, pause):
    bot, module = working
    await asked(bot, key)
    await eventually(lambda: ran_and_ended(bot, module, 1), "the first run")
    for _ in range(3):
        await asked(bot, key)
    await asked(bot, "b")
    await eventually(lambda: ran(module, 3), "the others")
    (first, began), (other, _), (again, ended) = module.runs[:3]
    assert (first, other, again) == (key, "b", key)
    assert ended - began >= pause


async def test_what_waits_for_something_runs_as_soon_as_it_is_asked_for(working):
    bot, module = working
    await asked(bot, "waits")
    await eventually(lambda: ran_and_ended(bot, module, 1), "the first run")
    await asked(bot, "waits")
    await eventually(lambda: ran(module, 2), "the second run")
    (_, began), (_, again) = module.runs
    assert again - began < 1.0


async def asked(bot, key):
    async with bot.store.transaction() as tx:
        tx.enqueue("pausing", key)


async def ran(module, times):
    return len(module.runs) >= times


async def ran_and_ended(bot, module, times):
    return await ran(module, times) and not [
        row for row in await bot.rows("task") if (row["kind"], row["state"]) == ("pausing", "running")
    ]
