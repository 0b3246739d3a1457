"""Reports by job, workflow and runner, over days; the jobs of a run."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.evidence.usage.report import date_of, split_periods, sum_pieces
from bot.ingest.tables import records
from bot.jobs.settings import TrunkSettings
from tests import harness
from tests.evidence.usage.conftest import Usage
from tests.evidence.usage.logs_of_usage import metadata, record, text
from tests.evidence.usage.test_stored import busy
from tests.harness import L3, UPSTREAM
from tests.sums import count_changed

REPORT = f"/api/ci/utilization/{UPSTREAM}/report"


@given(st.integers(20_000, 21_000), st.integers(0, 120), st.sampled_from(["day", "week", "month", "all"]))
@settings(max_examples=60)
def test_periods_are_made_of_each_of_their_days_once(first, length, granularity):
    found = split_periods(first, first + length, granularity)
    assert (found[0].first, found[-1].last) == (first, first + length)
    covered = []
    for period in found:
        days = [day for one in sum_pieces(period) for day in range(one.day, one.day + one.span)]
        assert days == list(range(period.first, period.last + 1))
        covered += days
        assert len({date_of(day).isocalendar()[:2] for day in days}) == 1 or granularity != "week"
        assert len({date_of(day).month for day in days}) == 1 or granularity != "month"
    assert covered == list(range(first, first + length + 1))


def level(values):
    return text(metadata(), *(record(at * 5, cpu=value, memory=value) for at, value in enumerate(values)))


async def test_a_report_is_what_all_records_say(bot, usage):
    chance, values = random.Random(5), []
    for number in range(12):
        mine = [round(chance.uniform(0, 100), 2) for _ in range(30)]
        values.append(mine)
        await usage.arrives(level(mine), trusted=True, name=f"build / test (c{number % 2}, 1, 2, npu.8)")
        if number in {3, 7}:
            bot.clock.advance(5 * 86_400)
    _, answer = await bot.get(REPORT)
    assert [one["group"] for one in answer["groups"]] == ["build / test (c0)", "build / test (c1)"]
    for at, group in enumerate(answer["groups"]):
        (period,) = group["periods"]
        every = sorted(value for day in values[at::2] for value in day)
        assert (period["jobs"], period["records"]) == (6, len(every))
        assert period["cpu"]["avg"] == pytest.approx(statistics.fmean(every), abs=0.005)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p98", 0.98)):
            exact = every[max(0, -int(-share * len(every) // 1) - 1)]
            assert exact - 1 < period["cpu"][name] <= exact
    for granularity in ("day", "week", "month"):
        _, told = await bot.get(f"{REPORT}?group_by=workflow_name&granularity={granularity}")
        (group,) = told["groups"]
        assert sum(one["records"] for one in group["periods"]) == 360
        assert group["periods"][-1]["end"] == "2026-10-01"
    _, told = await bot.get(f"{REPORT}?start=2026-09-22&end=2026-09-26&group_by=runner_label")
    assert [(one["group"], one["periods"][0]["jobs"]) for one in told["groups"]] == [("npu.8", 4)]
    _, told = await bot.get(f"{REPORT}?parent_group=other")
    assert told["groups"] == []
    for wrong in ("start=x", "end=2026-13-01", "start=2026-01-01&end=2025-01-01", "granularity=hour"):
        assert (await bot.get(f"{REPORT}?{wrong}"))[0] == 400


@pytest.mark.logic
async def test_trusted_and_other_runs_are_reported_apart(bot, usage):
    await usage.arrives(busy(), trusted=True)
    await usage.arrives(busy(seconds=100))
    for runs, counted in (("trusted", 60), ("others", 20)):
        _, answer = await bot.get(f"{REPORT}?runs={runs}")
        assert answer["groups"][0]["periods"][0]["records"] == counted
        assert answer["measured"] == 2
    _, page = await bot.get(f"/{UPSTREAM}/utilization")
    assert "1 job</span>" in page


@pytest.mark.logic
async def test_idle_hours_cost_and_what_was_not_measured(settings, github, issuer, clock):
    chosen = replace(settings, of_features={TrunkSettings: TrunkSettings(ci_runner_cost=(("npu.*", 7.2),))})
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        usage = Usage(bot, github)
        job = await usage.start(trusted=True)
        bot.clock.advance(1_000)
        usage.leave(job, busy(seconds=1_000, gpu=1.0))
        await usage.finish(job)
        await count_changed(bot.context)
        _, answer = await bot.get(f"{REPORT}?group_by=runner_label")
        (group,) = answer["groups"]
        (numbers,) = group["periods"]
        assert numbers["idle_gpu_hours"] == numbers["gpu_hours"] == pytest.approx(2_000 / 3_600)
        assert numbers["idle_share"] == 1
        assert numbers["cost"] == numbers["wasted"] == pytest.approx(2)
        assert (answer["measured"], answer["jobs"]) == (1, 2)
        _, page = await bot.get(f"/{UPSTREAM}/utilization?by=runner")
        assert "1 of 2 jobs of all runs" in page
        assert "2.00 for idle accelerators" in page


@pytest.mark.logic
async def test_pages_of_a_report(bot, usage, github):
    for day in range(3):
        await usage.arrives(busy(gpu=2.0, memory=40.0 + day), trusted=True)
        bot.clock.advance(86_400)
    await usage.arrives(busy(gpu=50.0), repo=L3, trusted=True)
    for query in ("", "?by=workflow", "?by=runner&sort=idle", "?granularity=week", "?granularity=all&days=7"):
        status, page = await bot.get(f"/{UPSTREAM}/utilization{query}")
        assert status == 200
        assert f'<a href="/{L3}/utilization?days=' in page
    link = page.split('<tr><th scope="row"><a href="', 1)[1].split('"')[0].replace("&amp;", "&")
    status, page = await bot.get(link)
    assert status == 200
    assert "build / test (default)" in page
    assert (
        "No job of trusted branches was measured" in (await bot.get(f"/{UPSTREAM}/utilization?group=none"))[1]
    )
    assert (await bot.get(f"/{UPSTREAM}/utilization?by=nothing"))[0] == 400
    assert (await bot.get("/no/where/utilization"))[0] == 404
    _, page = await bot.get(f"/{UPSTREAM}/utilization?runs=others")
    assert "No job of other runs was measured" in page
    assert "3 jobs of" in page
    async with bot.store.transaction() as tx:
        await tx.run(
            sa.update(records["repository"])
            .where(records["repository"].c.full_name == L3)
            .values(private=True)
        )
    _, page = await bot.get(f"/{UPSTREAM}/utilization")
    assert L3 not in page
    assert (await bot.get(f"/{L3}/utilization"))[0] == 404
    assert (await bot.get(f"/api/ci/utilization/{L3}/report"))[0] == 404


@pytest.mark.logic
async def test_the_jobs_of_a_run_are_listed_worst_first(bot, usage, github):
    run = await github.start_run(UPSTREAM, event="push")
    jobs = []
    for name, memory in (("a", 30.0), ("b", 99.0)):
        job = await github.start_job(run, name, ("npu.8",))
        usage.leave(job, busy(memory=memory, gpu=3.0))
        jobs.append(job)
    usage.leave(jobs[0], "", name="usage-log-nobodys")
    await github.start_job(run, "quiet")
    await usage.finish(jobs[0])
    status, page = await bot.get(f"/{UPSTREAM}/run/{run.id}/utilization")
    assert status == 200
    assert page.index(f"job/{jobs[1].id}/utilization") < page.index(f"job/{jobs[0].id}/utilization")
    assert "not attributed to a job" in page
    assert "the file is empty" in page
    assert "Not measured" in page
    assert "quiet" in page
    _, page = await bot.get(f"/{UPSTREAM}/run/{run.id}/utilization?sort=name")
    assert page.index(f"job/{jobs[0].id}/utilization") < page.index(f"job/{jobs[1].id}/utilization")
    assert (await bot.get(f"/{UPSTREAM}/run/4711/utilization"))[0] == 404
