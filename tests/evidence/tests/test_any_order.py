"""Facts in any order, twice, and after a kill at any point: the same rows."""

from __future__ import annotations

import itertools

import pytest
import sqlalchemy as sa

from bot.db.rows import metadata
from tests.evidence.tests.reported import JOB
from tests.evidence.tests.stored import JOBS, reports, run_report, shown
from tests.harness import UPSTREAM

HORIZON = 3600
MADE = (
    "test_failure", "test_summary", "test_job", "test_part", "test_day", "test", "test_class", "test_state",
)  # fmt: skip


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
