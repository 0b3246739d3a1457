"""Do all processes keep one budget for writing to GitHub? Also across restarts, bans, and without a database."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest

from bot.app import make_context
from bot.core.clock import SystemClock
from bot.core.errors import RetryLater
from bot.github.rate_limiter import CREATIONS_PER_HOUR, DISPATCHES_PER_MIN, RateLimiter, SharedBudgets
from tests.harness import UPSTREAM
from tests.process import PATIENCE, Process, options_for
from tests.serving import POSTGRES, SQLITE
from tests.workers import eventually

PULLS = 12
A_MINUTE = 240  # writes


@contextlib.asynccontextmanager
async def several(settings, clock, number):
    """So many processes' worth of bots on one database."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(make_context(settings, clock=clock)) for _ in range(number)]


async def write(context, repo=UPSTREAM, what="issues/1/comments"):
    client = context.github.client(repo, issues="write")
    await client.post(client.path(what), data={"body": "a comment"})


def limiter_of(context):
    """The rate limiter of one of several processes."""
    return RateLimiter(context.clock, writes_per_min=60, budgets=SharedBudgets(context.store, 1))


async def until_sent_back(paces, path):
    """Ask by turns for posts until every process is sent back; returns how many went, and for how long it was."""
    went, waits = 0, {}
    while len(waits) < len(paces):
        for number, one in enumerate(paces):
            try:
                await one.acquire(
                    "org", "POST", f"https://api.github.example/repos/o/r/{path}", low_priority=False
                )
                went += 1
            except RetryLater as error:
                waits[number] = error.after
    return went, max(waits.values())


@POSTGRES
@pytest.mark.parametrize(
    ("path", "most", "window"),
    [("dispatches", DISPATCHES_PER_MIN, 60), ("check-runs", CREATIONS_PER_HOUR, 3600)],
)
async def test_two_processes_have_one_budget(settings, clock, path, most, window):
    async with several(settings, clock, 2) as contexts:
        paces = [limiter_of(context) for context in contexts]
        went, wait = await until_sent_back(paces, path)
        while went < most:  # the budget of a minute comes before that of the hour
            clock.advance(wait)
            more, wait = await until_sent_back(paces, path)
            went += more
        assert went == most
        assert 0 < wait <= window
        clock.advance(wait)
        assert (await until_sent_back(paces[:1], path))[0] >= 1


async def test_a_budget_outlives_the_process(settings, clock):
    async with several(settings, clock, 1) as (context,):
        assert (await until_sent_back([limiter_of(context)], "dispatches"))[0] == DISPATCHES_PER_MIN
        (used,) = await limiter_of(context).usage()
    async with several(settings, clock, 1) as (context,):
        assert (await until_sent_back([limiter_of(context)], "dispatches"))[0] == 0
        assert await limiter_of(context).usage() == [used]
        assert used.dispatches == DISPATCHES_PER_MIN


@POSTGRES
@pytest.mark.parametrize("banned_by", ["POST", "GET"])
async def test_what_one_process_was_told_the_others_heed(settings, clock, github, banned_by):
    await github.open_pull(UPSTREAM)
    github.faults.add(method=banned_by, path="/issues/1", status=403, headers={"Retry-After": "90"})
    async with several(settings, clock, 2) as (one, other):
        with contextlib.suppress(RetryLater):
            client = one.github.client(UPSTREAM, issues="write")
            await (write(one) if banned_by == "POST" else client.getitem(client.path("issues/1/comments")))
        before = len(github.calls)
        client = other.github.client(UPSTREAM, issues="write")
        await other.github.tokens.get(UPSTREAM, {"issues": "write"})  # the App itself was not asked to wait
        asked = len(github.calls)
        assert asked > before
        for call in (lambda: write(other), lambda: client.getitem(client.path("issues/1/comments"))):
            with pytest.raises(RetryLater, match="asked us to wait") as waits:
                await call()
            assert 85 < waits.value.after <= 90
        assert len(github.calls) == asked
        clock.advance(91)
        await write(other)


@SQLITE
async def test_without_a_database_nothing_is_written(settings, clock, github, tmp_path):
    await github.open_pull(UPSTREAM)
    async with several(settings, clock, 1) as (context,):
        await write(context)
        before = len(github.calls)
        (tmp_path / "ootbot.db").rename(tmp_path / "elsewhere")
        with pytest.raises(RetryLater, match="cannot be read"):
            await write(context)
        assert len(github.calls) == before
        (tmp_path / "elsewhere").rename(tmp_path / "ootbot.db")
        await write(context)


class TestTwoWorkers:
    @pytest.fixture
    def clock(self):
        return SystemClock()

    @pytest.mark.nightly
    @POSTGRES
    async def test_publishing_together_they_write_no_faster_than_one_may(
        self, bot, github, tmp_path, database_url, app_key
    ):
        """Real processes in real time: checks of a dozen pull requests at four writes a second."""
        options = options_for(
            tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url
        ) | {
            "ROLE": "worker",
            "DATABASE_URL": database_url,
            "PUBLIC_URL": bot.url,
            "WRITES_PER_MIN": str(A_MINUTE),
        }
        workers = [Process(tmp_path, **options) for _ in range(2)]
        try:
            for ready in [await one.start() for one in workers]:
                await asyncio.wait_for(ready.wait(), PATIENCE)
            for _ in range(PULLS):
                await github.open_pull(UPSTREAM)

            async def published():
                return len(writes(github)) >= 2 * PULLS  # the check of L4 and the gate

            await eventually(published, "two checks of every pull request")
            done = [await published_by(one) for one in workers]
        finally:
            for one in workers:
                one.kill()
                await one.ended()
        times = [call.at for call in writes(github)]
        gap = 60_000 / A_MINUTE
        for at in range(
            len(times) - 16
        ):  # two that know nothing of each other take half as long; some come late
            assert times[at + 16] - times[at] >= 16 * gap * 0.7
        assert all(done), done


def writes(github):
    return [call for call in github.calls if call.method in {"POST", "PATCH"} and "/check-runs" in call.path]


async def published_by(process):
    """How many publish tasks a process has run, by its own count."""
    async with (
        aiohttp.ClientSession() as http,
        asyncio.timeout(PATIENCE),
        http.get(f"{process.url}/metrics") as answer,
    ):
        lines = (await answer.text()).splitlines()
    return sum(
        float(line.split()[-1])
        for line in lines
        if line.startswith("ootbot_task_runs_total{") and 'task="publish"' in line
    )
