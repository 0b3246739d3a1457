"""Is anything lost, kept twice or counted twice when the bot is killed while it collects?"""

from __future__ import annotations

import asyncio
import random

import pytest

from bot.core.clock import SystemClock
from bot.evidence.collect import blobs
from tests.harness import UPSTREAM
from tests.process import PATIENCE, Process, options_for, until

LOG = "2026-11-22T10:00:00.0000000Z FAILED test/a.py::test_b - AssertionError\n" * 2000


@pytest.fixture
def clock():
    return SystemClock()


async def left_behind(github, number):
    """A run with a failed job, its log and an artifact."""
    run = await github.start_run(UPSTREAM, event="push", name=f"CI {number % 3}")
    job = await github.start_job(run, f"build {number}")
    github.add_artifact(run, "wheels", {"a.whl": bytes(100)})
    await github.finish_job(job, "failure", log=LOG)
    await github.finish_run(run, "failure")
    return job


async def deliver_again(github):
    """GitHub sends what got no answer again."""
    latest = {delivery.guid: delivery for delivery in github.deliveries}
    for delivery in latest.values():
        if not delivery.ok:
            await github.redeliver(delivery)


async def reached(states, wanted):
    """Wait as long as anything changes: many kills leave much to be done."""
    loop, last, since = asyncio.get_running_loop(), None, 0.0
    while (now := states()) != wanted:
        if now != last:
            last, since = now, loop.time()
        left = {key: now.get(key) for key in wanted if now.get(key) != wanted[key]}
        assert loop.time() - since < PATIENCE, left
        await asyncio.sleep(0.2)


@pytest.mark.nightly
@pytest.mark.parametrize("kills", [3, 200])
async def test_nothing_is_lost_or_kept_twice(github, issuer, tmp_path, app_key, kills):
    options = options_for(
        tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url, issuer=issuer
    )
    process = Process(tmp_path, **options, CI_CALLS_PER_HOUR="100000")
    github.app.webhook_url = f"{process.url}/api/github/webhooks"
    chance, jobs = random.Random(7), []
    for number in range(kills):
        ready = await process.start()
        await ready.wait()
        await deliver_again(github)
        jobs.append(await left_behind(github, number))
        await asyncio.sleep(chance.uniform(0.0, 1.5 if kills > 10 else 6.0))
        process.kill()
        await process.ended()
    ready = await process.start()
    await ready.wait()
    await deliver_again(github)

    def states():
        rows = process.rows("SELECT object_id, state FROM ci_fetch WHERE kind = 'log'")
        return {row["object_id"]: row["state"] for row in rows}

    def listed():
        return process.rows("SELECT count(*) AS n FROM ci_artifact")[0]["n"] == kills

    async def pause():
        await asyncio.sleep(0.2)

    try:
        await reached(states, {job.id: "stored" for job in jobs})
        await until(listed, what="every artifact", again=pause)
        named = [row["blob"] for row in process.rows("SELECT blob FROM ci_fetch WHERE blob IS NOT NULL")]
        files = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
        # what was being written has a name of its own, and goes within hours
        files = [path for path in files if not path.name.startswith(blobs.TEMPORARY)]
        assert len(files) == len(named) == len(set(named)) == kills
        (counted,) = process.rows("SELECT sum(artifacts) AS n, sum(bytes) AS size FROM ci_storage_day")
        sizes = [len(one.content) for one in github.state.repo(UPSTREAM).artifacts.values()]
        assert (counted["n"], counted["size"]) == (kills, sum(sizes))
        (logs,) = process.rows("SELECT count(*) AS n FROM ci_log")
        assert logs["n"] == kills
        assert process.rows("SELECT kind, key, error FROM task WHERE state = 'dead'") == []
    finally:
        process.kill()
        await process.ended()
