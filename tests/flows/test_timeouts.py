"""Timeouts: silent jobs, dispatches and re-runs are concluded."""

from __future__ import annotations

import asyncio
from itertools import combinations

import pytest
import sqlalchemy as sa

from bot.database import make_store
from bot.features import FEATURES
from bot.oot.results import jobs
from tests.harness import L2, L3, L4, UPSTREAM, report_body
from tests.serving import POSTGRES, SQLITE
from tests.workers import eventually

HOUR = 3600
DAY = 24 * HOUR


def gate(bot, pull):
    return bot.checks(UPSTREAM, pull.head_sha)["oot / gate"]


async def failed_and_run_again(bot, github, pull):
    """An L4 run that failed and was asked to run again; returns the run, in its second attempt."""
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    job = await github.start_job(run, "build")
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id))
    await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    await bot.settle(horizon=20)
    (check,) = [one for one in github.check_runs(UPSTREAM, pull.head_sha) if one.name == "oot / tpu"]
    await github.rerequest(check.id)
    await bot.settle(horizon=20)
    assert run.run_attempt == 2
    assert gate(bot, pull)[:2] == ("in_progress", None)
    return run


@pytest.mark.logic
async def test_a_rerun_that_never_reports_makes_the_gate_red_in_time(bot, github, pull):
    await failed_and_run_again(bot, github, pull)
    await bot.wait(DAY + 120)
    assert gate(bot, pull)[:2] == ("completed", "failure")
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]
    assert (status, conclusion) == ("completed", "failure")
    assert "re-run" in title


@pytest.mark.logic
async def test_a_rerun_that_github_saw_failing_is_red_at_once_without_a_report(bot, github, pull):
    run = await failed_and_run_again(bot, github, pull)
    await github.finish_run(run, "failure")
    await bot.settle(horizon=20)
    assert gate(bot, pull)[:2] == ("completed", "failure")


@pytest.mark.logic
async def test_a_rerun_that_github_saw_succeeding_is_not_green_without_a_report(bot, github, pull):
    run = await failed_and_run_again(bot, github, pull)
    await github.finish_run(run, "success")
    await bot.settle(horizon=20)
    assert gate(bot, pull)[:2] == ("in_progress", None)
    await bot.wait(DAY + 120)
    assert gate(bot, pull)[:2] == ("completed", "failure")


@pytest.mark.logic
async def test_a_late_report_of_a_rerun_counts_after_all(bot, github, pull):
    run = await failed_and_run_again(bot, github, pull)
    await bot.wait(DAY + 120)
    await github.finish_run(run, "success")
    assert (await bot.report(bot.dispatch(L4), run_id=str(run.id), attempt=2))[0] == 200
    await bot.settle(horizon=60)
    assert gate(bot, pull)[:2] == ("completed", "success")


@pytest.mark.logic
async def test_after_a_vain_rerun_the_next_press_dispatches_again(bot, github, pull):
    await failed_and_run_again(bot, github, pull)
    await bot.wait(DAY + 120)
    await github.comment(pull, "/oot rerun tpu", "alice")
    await bot.settle(horizon=20)
    sent = [one for one in github.dispatches if one.repo.full_name == L4]
    assert len(sent) == 2
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    await bot.report(sent[-1], run_id=str(run.id))
    await github.finish_run(run, "success")
    await bot.settle(horizon=60)
    assert gate(bot, pull)[:2] == ("completed", "success")


@pytest.mark.logic
async def test_a_dispatch_github_refused_has_failed_not_never_started(bot, github):
    await bot.list_backends(f"L4: {{tpu: {{repo: {L4}, start_timeout: 1h}}}}")
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=502, times=100_000)
    pull = await github.open_pull(UPSTREAM)
    await bot.wait(HOUR - 60)
    assert [row["state"] for row in await bot.rows("oot_dispatch")] == ["pending"]
    await bot.wait(15 * 60)
    (row,) = await bot.rows("oot_dispatch")
    assert row["state"] == "failed"
    assert gate(bot, pull)[:2] == ("completed", "failure")


@pytest.mark.logic
async def test_a_dispatch_whose_task_is_gone_fails_in_time(bot, github):
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=502, times=100_000)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    async with bot.store.transaction() as tx:
        await tx.conn.exec_driver_sql("DELETE FROM task WHERE kind = 'dispatch'")
    await bot.wait(DAY + 180)
    (row,) = [row for row in await bot.rows("oot_dispatch") if row["backend"] == L4]
    assert row["state"] == "failed"
    assert gate(bot, pull)[:2] == ("completed", "failure")


@pytest.mark.logic
async def test_the_time_to_start_counts_from_the_dispatch(bot, github):
    github.faults.add(
        method="POST", path=rf"{L4}/dispatches$", status=429, headers={"Retry-After": str(2 * HOUR)}
    )
    await github.open_pull(UPSTREAM)
    await bot.wait(DAY + 60)

    async def state():
        (row,) = [row for row in await bot.rows("oot_dispatch") if row["backend"] == L4]
        return row["state"]

    assert await state() == "sent"
    await bot.wait(2 * HOUR + 120)
    assert await state() == "never_started"


@SQLITE
async def test_each_backend_has_its_own_timeout_even_behind_hundreds_of_others(bot, github):
    """More jobs than one page are older than the shortest timeout; the one that is due is found."""
    await bot.list_backends(
        f"L2: [{{repo: {L2}, job_timeout: 10h}}, {{repo: {L3}, job_timeout: 1h, start_timeout: 1h}}]"
    )
    await github.open_pull(UPSTREAM)
    await bot.settle()
    about = {"status": "in_progress", "conclusion": None, "run_id": "900", "attempt": 1}
    reports = [report_body(bot.dispatch(L2), job=f"a {number}", **about) for number in range(501)]
    token = bot.issuer.mint(repository=L2, run_id="900", run_attempt=1)
    for some in (reports[at : at + 30] for at in range(0, 501, 30)):
        sent = {"json": {"reports": some}, "headers": {"Authorization": f"Bearer {token}"}}
        assert (await bot.request("POST", "/api/oot/callback/batch", **sent))[0] == 200
    bot.clock.advance(2)
    await bot.report(bot.dispatch(L3), status="in_progress", job="z")
    await bot.wait(HOUR + 120)
    ended = [(row["downstream_repo"], row["conclusion"]) for row in await bot.rows("oot_workflow_job")
             if row["status"] == "completed"]  # fmt: skip
    assert ended == [(L3, "timed_out")]
    await bot.wait(10 * HOUR)
    assert {row["status"] for row in await bot.rows("oot_workflow_job")} == {"completed"}


@POSTGRES
async def test_the_sweep_and_a_batch_of_reports_on_the_same_jobs_never_deadlock(bot, settings, pull):
    for number in range(8):
        bot.clock.advance(1)
        await bot.report(bot.dispatch(L4), status="in_progress", job=f"job {number}")
    rows = sorted(await bot.rows("oot_workflow_job"), key=lambda row: row["started_at"])
    by_age = [row["job_key"] for row in rows]
    low, high = next((later, one) for one, later in combinations(by_age, 2) if later < one)
    bot.clock.advance(7 * HOUR)

    async def waits():
        async with bot.store.read() as tx:
            return await tx.rows(sa.text("SELECT 1 FROM pg_locks WHERE NOT granted"))

    batch = make_store(settings.database, clock=bot.clock, features=FEATURES)
    async with batch.transaction() as tx:
        await jobs.get_jobs(tx, {low})
        sweeping = asyncio.create_task(bot.worker.step())
        await eventually(waits, "a sweep that waits for a job")
        await jobs.get_jobs(tx, {low, high})
    await sweeping
    await batch.close()
    assert {row["conclusion"] for row in await bot.rows("oot_workflow_job")} == {"timed_out"}
