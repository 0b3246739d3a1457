"""Which results may feed baselines: one function decides, for artifacts, logs and tests."""

from __future__ import annotations

import sqlalchemy as sa

from bot.evidence.tests.tables import test_job
from tests.evidence.tests.reported import JOB, case, leave, ran, xml
from tests.harness import L3, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
HORIZON = 200


async def workflow_run(bot, github):
    """A run of the backend's own workflow on its default branch, which it reported on a pull request."""
    run = await github.start_run(L3, event="workflow_dispatch", head_branch="main")
    job = await github.start_job(run, JOB)
    await bot.report(bot.dispatch(L3), conclusion="failure", run_id=str(run.id))
    await leave(github, run, job, {"a.xml": xml(case("test_add", "failed"))}, conclusion="failure")
    await bot.settle(horizon=HORIZON)
    return run


async def test_a_backends_run_for_a_pull_request_is_not_trusted_whoever_started_it(bot, github):
    await github.push(L3)
    await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle()
    await workflow_run(bot, github)
    (row,) = await bot.rows("test_job")
    assert (row["backend"], row["trusted"]) == (L3, False)
    assert [one["trusted"] for one in await bot.rows("test_failure")] == [False]
    assert [one["trusted_first_at"] for one in await bot.rows("test")] == [None]
    assert await bot.rows("test_day") == []


async def test_rows_that_were_trusted_wrongly_are_counted_again(bot, github, clock):
    await github.push(L3)
    await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle()
    await workflow_run(bot, github)
    async with bot.store.transaction() as tx:
        await tx.run(sa.update(test_job).values(trusted=True))
        tx.enqueue("test_days", str((await bot.rows("test_job"))[0]["repository_id"]))
    await bot.settle(horizon=HORIZON)
    assert len(await bot.rows("test_day")) == 1
    clock.advance(3_700)
    await bot.settle(horizon=4_000)
    assert [row["trusted"] for row in await bot.rows("test_job")] == [False]
    assert await bot.rows("test_day") == []


async def test_a_trusted_run_of_upstream_is_trusted_still(bot, github):
    await ran(github, {"a.xml": xml(case("test_add"))}, event="push", head_branch="main")
    await bot.settle(horizon=HORIZON)
    assert [row["trusted"] for row in await bot.rows("test_job")] == [True]
