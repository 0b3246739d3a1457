"""Daily sums: the same in whatever order, counted once, and of trusted runs alone."""

from __future__ import annotations

import random

import pytest

from bot.evidence.collect import fetches
from bot.evidence.tests import days as count_days
from bot.evidence.tests import days as day_counts
from bot.evidence.tests.days import Counts
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import Code
from tests.evidence.tests.reported import JOB, case, known_tests, leave, ran, xml
from tests.harness import UPSTREAM

HORIZON = 900
DAY = 86_400_000


def job(*outcomes, flaky=False, time=20):
    return block.encode(
        (number, block.code_of(outcome, 1, flaky=flaky), time) for number, outcome in enumerate(outcomes, 5)
    )


def pages(*jobs):
    """What pages hold after some jobs (block, group, sign), each counted by itself."""
    stored = {}
    for content, group, sign in jobs:
        changes = day_counts.no_changes()
        day_counts.add_block(changes, content, group, sign)
        for page, groups in changes.items():
            stored[page] = day_counts.changed_page(stored.get(page), groups)
    return {page: content for page, content in stored.items() if content is not None}


def test_outcomes_are_counted_and_times_summed():
    stored = pages(
        (job(Code.PASSED, Code.FAILED, Code.SKIPPED, Code.XFAILED), "linux", 1),
        (job(Code.PASSED, Code.ERROR, flaky=True, time=block.NO_TIME), "linux", 1),
    )
    found = {test_id: counts for test_id, _, counts in day_counts.counts_of_tests(stored[0], range(5, 20))}
    assert found == {
        5: Counts(runs=2, flaky=1, units=2),
        6: Counts(runs=2, failed=1, erred=1, flaky=1, units=2),
        7: Counts(runs=1, skips=1, units=2),
        8: Counts(runs=1, units=2),
    }
    assert (found[5].passed, found[6].passed, found[5].time_ms) == (2, 0, 20)


def test_no_order_and_nothing_taken_away_again_makes_a_difference():
    chance = random.Random(3)
    jobs = [
        (
            block.encode(
                (test_id, block.code_of(chance.choice([1, 1, 1, 2, 3, 4, 5]), 1, flaky=chance.random() < 0.1), 1230)
                for test_id in chance.sample(range(1, 30_000), 200)
            ),
            f"group {number % 3}",
            1,
        )
        for number in range(12)
    ]  # fmt: skip
    once = pages(*jobs)
    assert len(once) > 3
    shuffled = chance.sample(jobs, len(jobs))
    extra = (job(Code.FAILED, Code.PASSED), "other", 1)
    assert pages(extra, *shuffled, (extra[0], "other", -1)) == once
    assert pages(*jobs, *((content, group, -1) for content, group, _ in jobs)) == {}


async def counted(bot):
    names = await known_tests(bot)
    (owner,) = {row["repository_id"] for row in await bot.rows("test_job")}
    days = {row["counted_day"] or row["at"] // DAY for row in await bot.rows("test_job")}
    async with bot.store.read() as tx:
        found = await count_days.days_of_tests(tx, owner, names, since=min(days), until=max(days))
    return {
        names[test_id][2]: {group: counts for groups in by_day.values() for group, counts in groups.items()}
        for test_id, by_day in found.items()
    }


async def test_trusted_runs_are_counted_once_however_often_they_are_collected(bot, github):
    run, job = await ran(github, {"a.xml": xml(case("test_a"), case("test_b", "flaky"))})
    await bot.settle(horizon=HORIZON)
    expected = {
        "test_a": {"linux cuda default": Counts(runs=1, units=25)},
        "test_b": {"linux cuda default": Counts(runs=1, flaky=1, units=25)},
    }
    assert await counted(bot) == expected
    for name, files in (
        ("late", {"b.xml": xml(case("test_a", "failed"))}),
        ("again", {"c.xml": xml(case("test_c"))}),
    ):
        github.add_artifact(run, f"test-reports-{name}_{job.id}", files)
        async with bot.store.transaction() as tx:
            tx.enqueue("artifacts", fetches.run_key(UPSTREAM, run.id, 1))
        await bot.settle(horizon=HORIZON)
    assert await counted(bot) == {
        "test_a": {"linux cuda default": Counts(runs=1, failed=1, units=25)},
        "test_b": expected["test_b"],
        "test_c": expected["test_a"],
    }


@pytest.mark.logic
@pytest.mark.parametrize(
    "changes",
    [
        {"event": "pull_request", "head_branch": "main"},  # a fork's branch called main
        {"event": "push", "head_branch": "feature"},
        {"name": JOB.replace("default", "rerun_disabled_tests")},
    ],
)
async def test_nothing_else_is_counted(bot, github, changes):
    if changes.get("event") == "pull_request":
        changes = changes | {"head_repo": github.add_repo("someone/pytorch", install=[])}
    await ran(github, {"a.xml": xml(case("test_a"), case("test_b", "failed"))}, **changes)
    await bot.settle(horizon=HORIZON)
    assert len(await bot.rows("test_job")) == 1
    assert await bot.rows("test_day") == []
    assert {row["trusted_first_at"] for row in await bot.rows("test")} == {None}
    assert await bot.rows("test_state") == []


@pytest.mark.logic
async def test_what_is_made_again_before_it_was_counted_counts_once(bot, github):
    run = await github.start_run(UPSTREAM, event="push")
    job = await github.start_job(run, JOB)
    await leave(github, run, job, {"a.xml": xml(case("test_a"))})
    await bot.settle(horizon=30)  # stored, not counted yet
    assert await bot.rows("test_day") == []
    async with bot.store.transaction() as tx:
        (row,) = await bot.rows("test_job")
        tx.enqueue("test_results", f"{row['repository_id']}/{run.id}/1/{job.id}")
    await bot.settle(horizon=HORIZON)
    assert await counted(bot) == {"test_a": {"linux cuda default": Counts(runs=1, units=25)}}
