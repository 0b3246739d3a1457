"""What processes share or leave behind: temporary files, and one budget for reading from GitHub."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bot.app import make_context
from bot.core.errors import OverBudget
from bot.evidence.collect.parser_pool import WORKSPACE, ProcessFolder
from bot.jobs import collection
from bot.jobs.settings import CollectSettings
from tests.harness import UPSTREAM
from tests.process import ROOT
from tests.serving import POSTGRES, SQLITE

HOUR, AT_ONCE = 3000, 500  # calls an hour, and of them in a full bucket


@SQLITE
async def test_what_a_killed_process_left_is_deleted_while_another_runs(bot, tmp_path):
    """Its folder is young, but nobody holds its lock; a folder that is in use stays, however old."""
    ours = ProcessFolder(bot.context.settings.data_dir / "tmp")
    in_use = ours.make()
    code = "import sys, pathlib; from bot.evidence.collect.parser_pool import ProcessFolder; "
    code += (
        "made = ProcessFolder(pathlib.Path(sys.argv[1])).make(); (made / 'file').write_bytes(bytes(1000)); "
    )
    code += "print(made, flush=True); sys.stdin.read()"
    folder = bot.context.settings.data_dir / "tmp"
    killed = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    left = Path(killed.stdout.readline().decode().strip())
    async with bot.context.resource(WORKSPACE).folder():
        await bot.wait(700)  # a sweep
        assert (left / "file").exists()
        killed.kill()
        killed.communicate()
        await bot.wait(700)
        assert not left.parent.exists()
        assert in_use.exists()
    ours.close()
    assert not in_use.exists()


@contextlib.asynccontextmanager
async def process(settings, clock):
    limits = CollectSettings(ci_calls_per_hour=HOUR, ci_bytes_per_hour=600_000_000)
    settings = replace(settings, of_features={**settings.of_features, CollectSettings: limits})
    async with make_context(settings, clock=clock) as context:
        yield context


async def spent(contexts, repo=UPSTREAM):
    """Call by turns until every process is refused; returns how many calls went, and the longest wait."""
    went, waits = 0, {}
    while len(waits) < len(contexts):
        for number, context in enumerate(contexts):
            try:
                await collection.spend_call(context, repo)
                went += 1
            except OverBudget as error:
                waits[number] = error.after
    return went, max(waits.values())


async def shown(context):
    async with context.store.read() as tx:
        return await collection.last_hour(tx)


@POSTGRES
async def test_two_processes_spend_what_one_may(settings, clock):
    async with process(settings, clock) as one, process(settings, clock) as other:
        went, wait = await spent([one, other])
        assert went == AT_ONCE
        assert 60 <= wait <= 3600
        assert (await spent([one, other], repo="elsewhere/x"))[0] == AT_ONCE
        clock.advance(60)
        assert (await spent([one, other]))[0] == HOUR / 60


async def test_many_calls_at_once_take_no_more_than_there_is(settings, clock):
    async with process(settings, clock) as context:
        calls = (collection.spend_call(context, UPSTREAM) for _ in range(AT_ONCE + 50))
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in done if one] == [OverBudget] * 50


async def test_what_a_process_did_not_spend_it_gives_back(settings, clock):
    async with process(settings, clock) as context:
        await collection.spend_call(context, UPSTREAM)
        await collection.spend_bytes(context, UPSTREAM, 1000)
    async with process(settings, clock) as context:
        assert await shown(context) == {"pytorch": (1, 1000)}
        assert (await spent([context]))[0] == AT_ONCE - 1


async def test_bytes_count_before_the_next_calls_are_taken(settings, clock):
    async with process(settings, clock) as context:
        await collection.spend_call(context, UPSTREAM)
        await collection.spend_bytes(context, UPSTREAM, 101_000_000)  # of the 100 MB in a bucket
        with pytest.raises(OverBudget):
            await spent_at_least(context, HOUR // collection.BUDGET_PARTS)


async def spent_at_least(context, calls):
    for _ in range(calls):
        await collection.spend_call(context, UPSTREAM)
