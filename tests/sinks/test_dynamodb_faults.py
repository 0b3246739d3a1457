"""A DynamoDB that is away, forbidden or cut off, and clocks that are wrong: items are as rows are, once it is back."""

from __future__ import annotations

import json

import pytest

from tests.harness import UPSTREAM
from tests.serving import SQLITE
from tests.sinks import faulty_dynamo
from tests.sinks.dynamo_tables import items

pytestmark = [SQLITE, pytest.mark.nightly, pytest.mark.logic]
HOUR = 3_600_000  # milliseconds


@pytest.fixture
async def between(dynamo):
    async with faulty_dynamo.serving(dynamo["AWS_ENDPOINT_URL"]) as made:
        yield made


@pytest.fixture
def tables(dynamo_sink, between):
    return {"dynamo": dynamo_sink["dynamo"] | {"endpoint": between.address, "what": ["workflow_job"]}}


async def ran_jobs(github, count=3):
    run = await github.start_run(UPSTREAM, event="push")
    jobs = [await github.start_job(run, f"build {number}") for number in range(count)]
    for job in jobs:
        await github.finish_job(job, "failure")
    return jobs


def conclusions(aws, prefix):
    """What the items of jobs say, by the job's id."""
    found = items(aws, f"{prefix}workflow-job")
    return {int(item["id"]["N"]): item.get("conclusion", {}).get("S") for item in found.values()}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("busy", "InternalServerError"),
        ("throttled", "ProvisionedThroughputExceededException"),
        ("expired", "ExpiredTokenException"),
        ("cut", "no answer"),
    ],
)
async def test_items_are_as_rows_are_once_it_is_back(bot, github, aws, prefix, between, fault, words):
    earlier = await ran_jobs(github)
    await bot.settle(horizon=10)
    between.fault = fault
    jobs = await ran_jobs(github)
    await bot.settle(horizon=10)
    (state,) = await bot.rows("sink_state")
    assert (words in state["error"], state["stopped"]) == (True, None), state
    assert len(await bot.rows("sink_mark")) == len(jobs)
    between.fault = ""
    await bot.settle(horizon=700)
    assert await bot.rows("sink_mark") == []
    assert conclusions(aws, prefix) == dict.fromkeys((job.id for job in [*earlier, *jobs]), "failure")


async def test_an_item_that_is_refused_is_kept_apart(bot, github, aws, prefix, between):
    between.refused = "build 1"
    jobs = await ran_jobs(github)
    await bot.settle(horizon=10)
    (refused,) = await bot.rows("sink_refused")
    assert (json.loads(refused["key"])[1], "SerializationException" in refused["error"]) == (jobs[1].id, True)
    assert conclusions(aws, prefix).keys() == {jobs[0].id, jobs[2].id}


async def test_what_a_clock_that_was_ahead_sent_is_replaced_all_the_same(bot, github, aws, prefix):
    run = await github.start_run(UPSTREAM, event="push")
    bot.clock.at += HOUR
    job = await github.start_job(run, "build")
    await bot.settle(horizon=10)
    assert conclusions(aws, prefix) == {job.id: None}
    bot.clock.at -= HOUR
    await github.finish_job(job, "success")
    await bot.settle(horizon=10)
    assert conclusions(aws, prefix) == {job.id: "success"}
    assert await bot.rows("sink_mark") == []
