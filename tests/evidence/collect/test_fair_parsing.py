"""One parser child, many repositories: files of one that take long keep no other's waiting."""

from __future__ import annotations

import asyncio

import pytest

from bot.evidence.collect import parser_pool
from bot.evidence.collect.parser_pool import Turns
from tests.evidence.collect.test_collecting import ended_job, fetches
from tests.harness import L2, UPSTREAM
from tests.serving import SQLITE

SLOW = """
import time


def log(given):
    if given.path.read_bytes().startswith(b"slow"):
        time.sleep(0.4)
    return {}
"""


@pytest.fixture
def readers(readers, tmp_path, monkeypatch):
    (tmp_path / "packages" / "collect_parsers.py").write_text(SLOW)
    # seconds: the shipped ten minutes would take as long
    monkeypatch.setattr(parser_pool, "SHARE_BURST", 1.0)
    return readers


@SQLITE
async def test_slow_files_of_one_repository_keep_no_other_waiting(bot, github, received):
    slow = [(await ended_job(github, log="slow"))[1] for _ in range(12)]
    await bot.settle(horizon=6)
    _, quick = await ended_job(github, repo=L2, log="quick")
    await bot.settle(horizon=6)
    states = await fetches(bot)
    assert states["log", quick.id] == ("stored", None)
    waiting = [one for one in slow if ("log", one.id) not in states]
    assert len(waiting) >= 6
    await bot.wait(600)
    states = await fetches(bot)
    assert {states["log", one.id] for one in slow} == {("stored", None)}
    assert [fetched.repo for fetched, *_ in received].count(UPSTREAM) == len(slow)


async def test_each_owner_gets_a_turn_before_another_gets_a_second():
    turns, order = Turns(1), []

    async def work(owner):
        async with turns.take(owner):
            order.append(owner)
            await asyncio.sleep(0)

    async with turns.take("first"):
        tasks = [asyncio.create_task(work(owner)) for owner in ("a", "a", "a", "b", "c", "b")]
        await asyncio.sleep(0)
        tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["a", "b", "c", "a", "b"]
