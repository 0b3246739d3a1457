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
from tests import harness
from tests.flows.scenarios import JOBS, open_under
from tests.harness import L4, UPSTREAM
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


# How often the bot writes to GitHub: paced, gates first, nothing lost.


CHECKS = "https://api.github.example/repos/o/r/check-runs"


def limiter_at(clock, writes_per_min=60):
    return RateLimiter(clock, writes_per_min=writes_per_min)


async def test_a_write_a_second_and_no_more(clock):
    limiter = limiter_at(clock)
    began = clock.now()
    for _ in range(10):
        await limiter.acquire("org", "PATCH", f"{CHECKS}/1", low_priority=False)
    assert clock.now() - began == 9_000


async def test_what_can_wait_is_sent_back_while_gates_and_verdicts_go(clock):
    limiter = limiter_at(clock)
    for _ in range(45):
        await limiter.acquire("org", "POST", CHECKS, low_priority=True)
    with pytest.raises(RetryLater) as waits:
        await limiter.acquire("org", "POST", CHECKS, low_priority=True)
    assert 0 < waits.value.after <= 60
    for _ in range(14):
        await limiter.acquire("org", "POST", CHECKS, low_priority=False)
    await limiter.acquire("org", "PATCH", f"{CHECKS}/1", low_priority=True)
    await limiter.acquire("other", "POST", CHECKS, low_priority=True)


@pytest.mark.parametrize("low_priority", [True, False])
async def test_no_minute_and_no_hour_holds_more_creations_than_allowed(clock, low_priority):
    limiter, at = limiter_at(clock), []
    end = clock.now() + 3 * 3_600_000
    while clock.now() < end:
        try:
            await limiter.acquire("org", "POST", CHECKS, low_priority=low_priority)
            at.append(clock.now())
        except RetryLater as error:
            clock.advance(error.after)
    for limit, window in ((60, 60_000), (CREATIONS_PER_HOUR, 3_600_000)):
        most = max(sum(start <= one < start + window for one in at) for start in at[::7])
        assert most <= (limit * 3 // 4 if low_priority else limit)


async def test_few_wait_in_the_workers_slots_and_gates_sent_back_go_before_the_rest(clock):
    limiter, go, sleeping = limiter_at(clock), asyncio.Event(), []

    async def hold(seconds):
        sleeping.append(seconds)
        await go.wait()

    clock.sleep = hold
    turns = [
        asyncio.create_task(limiter.acquire("org", "PATCH", f"{CHECKS}/1", low_priority=False))
        for _ in range(20)
    ]
    await asyncio.sleep(0)
    sent_back = [turn.exception().after for turn in turns if turn.done() and turn.exception()]
    assert (len(sleeping), len(sent_back)) == (6, 13)
    assert set(sent_back) == {7.0}
    clock.advance(7.5)
    with pytest.raises(RetryLater):
        await limiter.acquire("org", "POST", CHECKS, low_priority=True)
    await limiter.acquire("other", "POST", CHECKS, low_priority=True)
    go.set()
    await asyncio.gather(*turns, return_exceptions=True)
    await limiter.acquire("org", "PATCH", f"{CHECKS}/1", low_priority=False)


async def test_dispatches_have_a_budget_of_their_own(clock):
    limiter = limiter_at(clock)
    for _ in range(DISPATCHES_PER_MIN):
        await limiter.acquire(
            "org", "POST", "https://api.github.example/repos/o/r/dispatches", low_priority=False
        )
    for seconds in (1, 58):  # also the last second is not slept through: it may be overtaken meanwhile
        clock.advance(seconds)
        with pytest.raises(RetryLater):
            await limiter.acquire(
                "org", "POST", "https://api.github.example/repos/o/r/dispatches", low_priority=False
            )
    await limiter.acquire("org", "POST", CHECKS, low_priority=False)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (429, {"Retry-After": "90"}, None),
        (403, {"X-RateLimit-Remaining": "0"}, None),
        (403, {}, {"message": "You have exceeded a secondary rate limit"}),
        (502, {}, None),
    ],
)
async def test_after_a_ban_nothing_is_lost_and_what_is_true_then_is_written(
    bot, github, status, headers, body
):
    github.faults.add(method="POST", path="check-runs$", status=status, headers=headers, body=body)
    pull = await open_under(bot, github)
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id))
    await bot.wait(3700)
    assert {name: seen[:2] for name, seen in bot.checks(UPSTREAM, pull.head_sha).items()} == {
        "oot / gate": ("completed", "failure"),
        "oot / tpu": ("completed", "failure"),
    }
    names = [run.name for run in github.check_runs_all(UPSTREAM, pull.head_sha)]
    assert sorted(names) == ["oot / gate", "oot / tpu"]
    written = [
        call.body["status"]
        for call in github.calls
        if call.path.endswith("check-runs") and call.status == 201
    ]
    assert set(written) <= {"completed", "queued", "in_progress"}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_burst_of_pull_requests_has_its_gates_first(github, issuer, clock, settings):
    limiter = harness.replace(settings, writes_per_min=60)
    async with harness.running(limiter, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        labels = [f"{prefix}npu" for prefix in ("ciflow/oot/",)]
        pulls = [await github.open_pull(UPSTREAM, labels=labels) for _ in range(30)]
        await bot.settle(horizon=1200)
        calls = [
            call.body["name"]
            for call in github.calls
            if call.path.endswith("check-runs") and call.status == 201
        ]
        last_gate = max(at for at, name in enumerate(calls) if name == "oot / gate")
        assert len(calls) == 90
        assert last_gate < 60
        for pull in pulls:
            assert len(bot.checks(UPSTREAM, pull.head_sha)) == 3


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_is_written_saved_and_sent_back_is_counted(bot, github):
    async def value(line):
        lines = (await bot.get("/metrics"))[1].splitlines()
        return next((float(one.rpartition(" ")[2]) for one in lines if one.startswith(line + " ")), 0.0)

    names = [
        "ootbot_github_write_wait_seconds_count",
        "ootbot_github_writes_saved_total",
        'ootbot_github_writes_sent_back_total{reason="asked"}',
    ]
    before = [await value(name) for name in names]
    github.faults.add(method="POST", path="check-runs$", status=429, headers={"Retry-After": "9"})
    pull = await open_under(bot, github)
    await bot.settle(horizon=30)
    async with bot.store.transaction() as tx:
        tx.enqueue("publish", f"{UPSTREAM}#{pull.number}")
    await bot.settle()
    written, saved, sent_back = [await value(name) - old for name, old in zip(names, before, strict=True)]
    assert written >= len(bot.checks(UPSTREAM, pull.head_sha))
    assert saved >= 2
    assert sent_back >= 1
    hour = await value('ootbot_github_creations_left{account="pytorch",window="hour"}')
    assert hour == CREATIONS_PER_HOUR * 100 - 3


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_gate_does_not_wait_for_what_the_hours_budget_refuses(github, issuer, clock, settings):
    """A failure is reported while a publish runs that then has to wait most of an hour for a check of its own."""
    sparse = harness.replace(settings, writes_per_min=8)
    async with harness.running(sparse, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        for _ in range(25):
            await github.open_pull(UPSTREAM)
        await bot.settle(horizon=600)
        sleep, sent, waits = clock.sleep, len(github.dispatches), []

        async def report(seconds):
            if not waits:
                waits.append(seconds)
                while len(github.dispatches) < sent + 8:  # noqa: ASYNC110 - nothing says when
                    await asyncio.sleep(0.01)
                for at in (-1, -2):
                    assert (await bot.report(bot.dispatch(L4, at), conclusion="failure"))[0] == 200
            await sleep(seconds)

        clock.sleep = report
        _, pull = [await github.open_pull(UPSTREAM) for _ in range(2)]  # of two at once one waits a moment
        await bot.settle()
        assert waits
        await bot.settle(horizon=60)
        assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_very_many_jobs_with_checks_of_their_own_leave_room_for_other_gates(
    github, issuer, clock, settings
):
    sparse = harness.replace(settings, writes_per_min=4)  # 26 new checks an hour
    async with harness.running(sparse, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await open_under(bot, github, JOBS)
        outcome = {"status": "completed", "conclusion": "failure", "run_id": "1", "attempt": 1}
        reports = [harness.report_body(bot.dispatch(L4), job=f"job {job}", **outcome) for job in range(30)]
        headers = {"Authorization": f"Bearer {issuer.mint(repository=L4, run_id='1', run_attempt=1)}"}
        sent = {"reports": reports}
        assert (await bot.request("POST", "/api/oot/callback/batch", json=sent, headers=headers))[0] == 200
        for _ in range(8):
            await bot.settle()
            bot.clock.advance(65)
        pull = await github.open_pull(UPSTREAM)
        await bot.settle(horizon=120)
        assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("in_progress", None)


@pytest.mark.nightly
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_thousand_reports_within_a_minute_cost_few_writes(github, issuer, clock, settings):
    chosen = harness.replace(settings, rate_limit_per_min=2000)
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await open_under(bot, github)
        before = len(github.calls)
        headers = {"Authorization": f"Bearer {issuer.mint(repository=L4, run_id='1', run_attempt=1)}"}
        for lot in range(100):
            reports = [
                harness.report_body(
                    bot.dispatch(L4),
                    status=status,
                    conclusion="success",
                    job=f"job {job}",
                    run_id="1",
                    attempt=1,
                )
                for job in range(lot * 5, lot * 5 + 5)
                for status in ("in_progress", "completed")
            ]
            sent = {"reports": reports}
            assert (await bot.request("POST", "/api/oot/callback/batch", json=sent, headers=headers))[
                0
            ] == 200
            bot.clock.advance(0.6)
            await bot.settle()
        assert len(await bot.rows("oot_workflow_job")) == 500
        await bot.settle(horizon=60)
        writes = [
            call
            for call in github.calls[before:]
            if call.method != "GET" and "access_tokens" not in call.path
        ]
        assert len(writes) <= 60
