"""Which task runs, and when? What is due, what pauses, and what of the background keeps no other waiting."""

import asyncio
import sys

import pytest
import sqlalchemy as sa

from bot.app import make_worker
from bot.core.feature import Feature
from bot.features import FEATURES
from bot.queue import tasks
from bot.queue.tasks import task
from bot.worker import BACKGROUND_SLOTS
from tests import harness
from tests.harness import L4, UPSTREAM
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


DOWNLOADS = """
import asyncio

running = []
over = asyncio.Event()


async def slow(context, task):
    running.append(task.key)
    try:
        await over.wait()
    finally:
        running.remove(task.key)
"""


@pytest.fixture
def slow_downloads(tmp_path, monkeypatch):
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "slow_downloads.py").write_text(DOWNLOADS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "slow_downloads", raising=False)  # of the other database
    return Feature(name="slow", tasks={"slow": "slow_downloads:slow"}, background=frozenset({"slow"}))


async def test_a_gate_is_written_within_seconds_while_500_downloads_take_for_ever(
    slow_downloads, settings, github, issuer, clock
):
    features = (*FEATURES, slow_downloads)
    async with harness.running(
        settings, github=github, issuer=issuer, app=github.app, clock=clock, features=features
    ) as bot:
        import slow_downloads as module

        async with bot.store.transaction() as tx:
            for number in range(500):
                tx.enqueue("slow", str(number))
        worker = make_worker(bot.context, poll=0.05)
        working = asyncio.create_task(worker.run())
        try:
            await eventually(lambda: answered(len(module.running) == BACKGROUND_SLOTS), "downloads")
            began = clock.now()
            pull = await github.open_pull(UPSTREAM)
            gate = "oot / gate"
            await eventually(lambda: answered(gate in bot.checks(UPSTREAM, pull.head_sha)), "the gate")
            await eventually(
                lambda: answered(any(d.repo.full_name == L4 for d in github.dispatches)), "dispatch"
            )
            assert clock.now() - began <= 5_000
            assert len(module.running) == BACKGROUND_SLOTS  # others never got a place
        finally:
            worker.stop()
            module.over.set()
            await working


async def answered(value):
    return value


NOW = 1_000_000
KINDS = [f"kind {number}" for number in range(60)]


def test_tasks_for_later_do_not_make_a_claim_slower():
    assert [steps(later=3_000, background=one) for one in (False, True)] == [
        steps(later=30, background=one) for one in (False, True)
    ]


def steps(*, later: int, background: bool) -> int:
    """Return how many instructions of SQLite's machine the second claim took, in tens."""
    engine = sa.create_engine("sqlite://")
    with engine.connect() as conn:
        task.metadata.create_all(conn, tables=[task])
        conn.execute(
            sa.insert(task), [waiting(number, background, due=number >= later) for number in range(later + 5)]
        )
        driver = conn.connection.driver_connection
        given = {"now": NOW, "kinds": KINDS, "paused": [], "most": 4, "by": "me", "until": NOW + 1}
        made = tasks._claiming(sqlite=True, background=background).compiled(given)
        taken, counted = [], 0

        def count():
            nonlocal counted
            counted += 1

        for most in (1, 4):
            counted = 0
            driver.set_progress_handler(count, 10)
            taken += driver.execute(*made.call(given | {"most": most})).fetchall()
        driver.set_progress_handler(None, 10)
    engine.dispose()
    assert len(taken) == 5
    return counted


def waiting(number: int, background: bool, *, due: bool) -> dict:
    return {
        "id": number + 1, "kind": KINDS[number % len(KINDS)], "key": str(number), "state": "waiting",
        "created_at": 0, "due_at": NOW if due else 2 * NOW, "attempts": 0, "background": background,
    }  # fmt: skip
