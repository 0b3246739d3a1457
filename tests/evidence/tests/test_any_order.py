"""Facts in any order, late, twice and after a crash: the same rows; and how long they are kept."""

from __future__ import annotations

import itertools

import pytest
import sqlalchemy as sa

from bot.db.rows import metadata
from bot.demo.github.serializers import actions
from bot.demo.github.serializers.repository import repository as show
from bot.evidence.collect import blobs
from bot.evidence.tests import job_parts
from bot.evidence.tests.rows import GENERATIONS
from bot.evidence.tests.tables import test_failure, test_job, test_summary
from bot.ingest.tables import records
from tests.evidence.tests.reported import JOB, case, known_tests, ran, xml
from tests.evidence.tests.stored import JOBS, reports, run_report, shown
from tests.harness import L3, UPSTREAM

HORIZON = 3600
MADE = (
    "test_failure", "test_summary", "test_job", "test_part", "test_day", "test", "test_class", "test_state",
)  # fmt: skip
DAY = 86_400
REPORT = {"a.xml": xml(case("test_a"), case("test_b", "failed"), case("test_c", "flaky"))}


@pytest.mark.logic
async def test_every_order_of_artifacts_comes_to_the_same(bot, github):
    """Three jobs of a trusted run, each with two artifacts, stored one by one in some of their orders."""
    run = await github.start_run(UPSTREAM, event="push")
    jobs = [await github.start_job(run, JOB.replace("default", letter)) for letter in JOBS]
    for letter, job in zip(JOBS, jobs, strict=True):
        github.add_artifact(run, f"test-reports-{letter}_{job.id}", reports(letter))
        github.add_artifact(run, f"torchci-reports-{letter}_{job.id}", run_report(letter))
        await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await bot.settle(horizon=HORIZON)
    first = await _shown(bot)
    assert len(first["jobs"]) == 3
    assert len(first["days"]) == len(first["tests"]) + 2  # test_one ran in three environments
    parts = await bot.rows("test_part")
    for order in itertools.islice(itertools.permutations(parts), 0, 720, 190):
        async with bot.store.transaction() as tx:
            for table in MADE:
                await tx.run(sa.delete(metadata.tables[table]))
        for part in order:  # one after the other, as if each came alone
            async with bot.store.transaction() as tx:
                await tx.run(sa.insert(metadata.tables["test_part"]).values(part))
                key = "/".join(
                    str(part[name]) for name in ("repository_id", "run_id", "run_attempt", "job_id")
                )
                tx.enqueue("test_results", key)
            await bot.settle(horizon=300)
        await bot.settle(horizon=HORIZON)
        assert await _shown(bot) == first


async def _shown(bot):
    kept = {name: await bot.rows(name) for name in metadata.tables if name.startswith("test")}
    return shown(kept.__getitem__)


async def count(bot, *tables):
    return [len(await bot.rows(table)) for table in tables]


async def test_results_go_in_their_time(bot, github):
    await ran(github, REPORT)
    await bot.settle(horizon=HORIZON)
    store = blobs.open_blobs(bot.context.settings)
    assert len([one async for one in store.list()]) == 1
    bot.clock.advance(15 * DAY)
    await job_parts.prune_results(bot.context)
    assert [one async for one in store.list()] == []  # a job's artifacts have long come
    assert await count(bot, "test_failure", "test_summary", "test_job", "test") == [2, 1, 1, 3]
    (row,) = await bot.rows("test_job")
    assert row["block"] is not None
    bot.clock.advance(170 * DAY)
    await job_parts.prune_results(bot.context)
    assert await count(bot, "test_failure", "test_summary", "test_job", "test", "test_day") == [0, 0, 1, 3, 1]
    (row,) = await bot.rows("test_job")
    assert (row["block"], row["tests"]) == (None, 3)
    bot.clock.advance(300 * DAY)
    await job_parts.prune_results(bot.context)
    assert await count(bot, "test_job", "test_part", "test", "test_class", "test_day") == [0, 0, 0, 0, 0]


async def test_what_a_crash_left_half_written_is_not_shown_and_goes(bot, github):
    await ran(github, REPORT)
    await bot.settle(horizon=HORIZON)
    async with bot.store.transaction() as tx:
        for table in (test_failure, test_summary):
            (row,) = (await tx.rows(sa.select(table)))[:1]
            await tx.run(sa.insert(table).values(row | {"generation": tx.now * GENERATIONS + 5}))
    _, answer = await bot.get(f"/api/ci/runs/{UPSTREAM}/{(await bot.rows('test_job'))[0]['run_id']}/tests")
    assert len(answer["failures"]) == 2
    bot.clock.advance(2 * DAY)
    await job_parts.prune_results(bot.context)
    assert await count(bot, "test_failure", "test_summary") == [2, 1]


@pytest.mark.logic
async def test_a_job_that_is_recorded_after_its_reports_names_them(bot, github):
    run, job = await ran(github, REPORT)
    await bot.settle(horizon=HORIZON)
    recorded = records["workflow_job"]
    async with bot.store.transaction() as tx:  # as if the job's deliveries were late
        await tx.run(sa.update(test_job).values(name="?", family="?"))
        await tx.run(sa.delete(recorded).where(recorded.c.id == job.id))
    body = actions.job(github.state, job)
    repository = show(github.state, github.state.repo(UPSTREAM))
    await bot.send("workflow_job", {"action": "completed", "workflow_job": body, "repository": repository})
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert (row["run_id"], row["name"], row["tests"]) == (run.id, JOB, 3)
    assert await count(bot, "test_failure") == [2]


@pytest.mark.logic
async def test_a_run_whose_dispatch_is_reported_later_is_tied_to_it(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L3)
    run, _ = await ran(github, REPORT, repo=L3, event="repository_dispatch")
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    assert (row["backend"], row["upstream_sha"], row["trusted"]) == (L3, None, False)
    status, _ = await bot.report(dispatch, status="completed", conclusion="failure", run_id=str(run.id))
    assert status == 200
    await bot.settle(horizon=HORIZON)
    (row,) = await bot.rows("test_job")
    head = dispatch.client_payload["payload"]["pull_request"]["head"]["sha"]
    assert (row["upstream_repo"], row["upstream_sha"], row["pr_number"]) == (UPSTREAM, head, 1)
    assert {one["head_sha"] for one in await bot.rows("test_failure")} == {head}
    assert len(await known_tests(bot)) == 3
