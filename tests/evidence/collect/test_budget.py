"""Do all processes keep one budget for reading from GitHub, though each takes calls ahead?"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from bot.app import make_context
from bot.core.errors import OverBudget
from bot.jobs import collection
from bot.jobs.settings import CollectSettings
from tests.harness import UPSTREAM
from tests.serving import POSTGRES

HOUR, AT_ONCE = 3000, 500  # calls an hour, and of them in a full bucket


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
