"""Is anything lost, or counted twice, when the bot is killed while it stores test results?"""

from __future__ import annotations

import asyncio
import random

import pytest

from bot.core.clock import SystemClock
from tests.evidence.tests.reported import JOB, JOBS, leave, reports, shown
from tests.harness import UPSTREAM
from tests.process import Process, options_for

pytestmark = pytest.mark.nightly
KILLS = 12
LOOKS = 600  # a second apart: sums are made within ten minutes


@pytest.fixture
def clock():
    return SystemClock()


async def test_nothing_is_lost_or_counted_twice_when_the_bot_is_killed(github, issuer, tmp_path, app_key):
    options = options_for(
        tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url, issuer=issuer
    )
    process = Process(tmp_path, **options, CI_CALLS_PER_HOUR="100000")
    github.app.webhook_url = f"{process.url}/api/github/webhooks"
    chance = random.Random(11)
    for number in range(KILLS):
        ready = await process.start()
        await ready.wait()
        await deliver_again(github)
        run = await github.start_run(UPSTREAM, event="push")
        job = await github.start_job(run, JOB)
        await leave(github, run, job, reports(JOBS[number % 3]))
        await asyncio.sleep(chance.uniform(0.0, 25.0))
        process.kill()
        await process.ended()
    ready = await process.start()
    await ready.wait()
    await deliver_again(github)

    def counted():
        jobs = process.rows("SELECT generation, counted, trusted FROM test_job")
        return len(jobs) == KILLS and all(
            row["counted"] == row["generation"] and row["trusted"] for row in jobs
        )

    try:
        for _ in range(LOOKS):
            if counted():
                break
            await asyncio.sleep(1)
        assert counted()
        found = shown(lambda table: process.rows(f"SELECT * FROM {table}"))
        letters = [JOBS[number % 3] for number in range(KILLS)]
        assert len(found["failures"]) == sum(letter != "a" for letter in letters)
        runs = {tests[2]: counts.runs for _, tests, _, counts in found["days"] if tests[2] == "test_one"}
        assert runs == {"test_one": KILLS}
        assert process.rows("SELECT kind, key, error FROM task WHERE state = 'dead'") == []
    finally:
        process.kill()
        await process.ended()


async def deliver_again(github):
    """GitHub sends what got no answer again."""
    latest = {delivery.guid: delivery for delivery in github.deliveries}
    for delivery in latest.values():
        if not delivery.ok:
            await github.redeliver(delivery)
