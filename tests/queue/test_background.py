"""Tasks of the background, such as downloads, never keep the others waiting."""

import asyncio
import sys

import pytest

from bot.app import make_worker
from bot.core.feature import Feature
from bot.features import FEATURES
from bot.worker import BACKGROUND_SLOTS
from tests import harness
from tests.harness import L4, UPSTREAM
from tests.workers import eventually

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
