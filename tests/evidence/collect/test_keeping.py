"""How long what was collected stays, what is collected, and what the operator learns."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pytest

from bot.evidence.collect import blobs
from bot.jobs import collection
from bot.jobs.settings import CollectSettings
from tests.command import ootbot
from tests.evidence.collect.test_collecting import LOG, ended_job, fetches
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE

DAY = 86_400
CHANGE = "set CI=upstream,backends to collect logs and artifacts"


def made_at(bot, seconds_ago):
    """Pretend that every blob file was written that long before the bot's time."""
    at = bot.clock.now() / 1000 - seconds_ago
    for path in (bot.context.settings.data_dir / "blobs").rglob("*"):
        if path.is_file():
            os.utime(path, (at, at))


async def kept(bot):
    return {one.key async for one in blobs.open_blobs(bot.context.settings).list()}


async def prune(bot):
    async with bot.store.transaction() as tx:
        tx.enqueue("prune", "")
    await bot.settle()


async def test_a_log_is_deleted_after_its_days_and_its_row_says_so(bot, github):
    _, job = await ended_job(github)
    await bot.settle(horizon=6)
    made_at(bot, 0)
    await prune(bot)
    assert len(await kept(bot)) == 1
    bot.clock.advance(31 * DAY)
    await prune(bot)
    assert await kept(bot) == set()
    assert (await fetches(bot))["log", job.id] == ("expired", "kept for 30 days")
    bot.clock.advance(500 * DAY)
    await prune(bot)
    assert await fetches(bot) == {}


async def test_a_blob_that_no_row_names_is_deleted_after_a_day(bot, github):
    await ended_job(github)
    await bot.settle(horizon=6)
    store = blobs.open_blobs(bot.context.settings)
    await store.put("log/1/2", b"left by a crash")
    made_at(bot, DAY - 60)
    await prune(bot)
    assert len(await kept(bot)) == 2
    made_at(bot, DAY + 60)
    await prune(bot)
    assert "log/1/2" not in await kept(bot)
    assert len(await kept(bot)) == 1


@pytest.mark.parametrize("collecting", [{"blobs_max_bytes": 25_000}], indirect=True)
async def test_over_the_limit_the_oldest_logs_go_first(bot, github):
    jobs = []
    for age in (3, 2, 1):
        _, job = await ended_job(github, log="x" * 10_000)
        await bot.settle(horizon=6)
        jobs.append(job)
        newest = blobs.open_blobs(bot.context.settings)._path(
            f"log/{github.state.repo(UPSTREAM).id}/{job.id}"
        )
        at = bot.clock.now() / 1000 - age * 60
        os.utime(newest, (at, at))
    await prune(bot)
    found = await fetches(bot)
    assert [found["log", job.id][0] for job in jobs] == ["expired", "stored", "stored"]
    assert found["log", jobs[0].id][1] == "deleted to keep BLOBS_MAX_BYTES"


@pytest.fixture
def today(bot):
    """The bot's clock shows what the clock of a command beside it shows."""
    bot.clock.at = time.time_ns() // 1_000_000


async def test_past_runs_are_collected_by_hand(bot, github, today):
    github.faults.add(method="HOOK", path="workflow", drop=True, times=100)
    run, _ = await ended_job(github)
    github.add_artifact(run, "junit", {"a.xml": b"x"})
    await github.finish_run(run, "failure")
    await bot.settle(horizon=20)
    assert await fetches(bot) == {}
    code, _, err = await ootbot(bot, "ci", "collect", UPSTREAM, "--run", str(run.id), "--no-wait")
    assert (code, "asked for 1 runs with 1 jobs, 1 of them failed" in err) == (0, True), err
    await bot.settle(horizon=60)
    assert sorted(state for state, _ in (await fetches(bot)).values()) == ["parsed", "stored"]
    code, out, _ = await ootbot(bot, "ci", "status", "--json")
    (one,) = json.loads(out)["repos"]
    assert (code, one["repo"], one["states"]) == (0, UPSTREAM, {"parsed": 1, "stored": 1})
    assert one["calls_last_hour"] >= 5
    assert one["bytes_last_hour"] > 0
    assert one["oldest_wanted_at"] is None
    _, out, _ = await ootbot(bot, "ci", "status")
    assert UPSTREAM in out
    assert "collecting of upstream and backends (CI=upstream,backends)" in out


async def test_what_failed_is_fetched_again_by_hand_and_what_is_there_is_not(bot, github, received, today):
    github.faults.add(path="/logs$", status=410)
    run, job = await ended_job(github)
    await bot.settle(horizon=6)
    await ended_job(github)
    await github.finish_run(run, "failure")
    await bot.settle(horizon=20)
    assert (await fetches(bot))["log", job.id][0] == "expired"
    before = len(received)
    code, _, err = await ootbot(bot, "ci", "collect", UPSTREAM, "--since", "2d", "--no-wait")
    assert code == 0, err
    await bot.settle(horizon=60)
    assert (await fetches(bot))["log", job.id][0] == "stored"
    assert len(received) == before + 1


@pytest.mark.parametrize("collecting", [{"ci": ("backends",)}], indirect=True)
async def test_by_hand_nothing_is_collected_that_the_settings_leave_out(bot, github):
    run, _ = await ended_job(github)
    code, _, err = await ootbot(bot, "ci", "collect", "org/stranger", "--run", str(run.id))
    assert (code, "is not collected" in err) == (1, True)
    assert (await ootbot(bot, "ci", "collect", UPSTREAM))[0] == 2


async def test_doctor_says_what_collecting_needs(bot):
    _, out, _ = await ootbot(bot, "doctor", "--json")
    checks = {one["name"]: one for one in json.loads(out)["checks"]}
    assert checks["collecting"]["detail"].startswith("of upstream and backends (CI=upstream,backends)")
    for name in ("blobs", "parser child", "google-re2", f"actions of {UPSTREAM}"):
        assert checks[name]["status"] == "ok", checks[name]


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (CollectSettings(), "of upstream and backends (CI=upstream,backends); set CI=off to collect nothing"),
        (CollectSettings(ci=("upstream",)), "of upstream (CI=upstream); set CI=off to collect nothing"),
        (CollectSettings(ci=()), f"off (CI=off); {CHANGE}"),
    ],
)
def test_it_says_what_applies_and_how_to_change_it(settings, chosen, words):
    chosen_settings = replace(settings, of_features={CollectSettings: chosen})
    assert collection.describe_scope(chosen_settings) == words


async def test_a_log_that_came_empty_is_asked_for_again(bot, github, received):
    _, job = await ended_job(github, log="")
    await bot.settle(horizon=6)
    assert (await fetches(bot))["log", job.id][0] == "wanted"
    assert received == []
    job.log = LOG.encode()
    await bot.wait(700)
    assert (await fetches(bot))["log", job.id] == ("stored", None)
    ((_, answer, _),) = received
    assert answer["lines"] == 2


async def test_a_log_that_is_empty_twice_is(bot, github, received):
    _, job = await ended_job(github, log="")
    await bot.wait(700)
    assert (await fetches(bot))["log", job.id] == ("stored", None)
    assert [answer["lines"] for _, answer, _ in received] == [0]
    assert len([call for call in github.calls if call.path.endswith("/logs")]) == 2


@pytest.mark.parametrize("later", [False, True])
async def test_an_artifact_that_came_empty_is_asked_for_again(bot, github, received, later):
    run = await github.start_run(UPSTREAM, event="push")
    full = github.add_artifact(run, "test-results", {"a.xml": b"<a/>"})
    made = github.add_artifact(run, "test-results-empty", b"")
    if later:
        made.digest = full.digest
    await github.finish_run(run, "success")
    await bot.settle(horizon=15)
    assert (await fetches(bot))["artifact", made.id][0] == "wanted"
    if later:
        made.content = full.content
    await bot.wait(700)
    assert (await fetches(bot))["artifact", made.id][0] == ("parsed" if later else "broken")
    assert len(received) == 1 + later
