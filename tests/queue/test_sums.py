"""Daily sums follow the rows that they count, but not their deletion, and are counted together."""

import re

import pytest

from bot.core.errors import RetryLater
from bot.jobs.branches import BRANCHES
from bot.queue import sums
from bot.queue.sums import DAY, SumPlace
from bot.queue.tasks import Task
from tests.jobs.branch import deliver, job, push
from tests.serving import SQLITE

FIELDS = ("sha", "jobs", "verdict")


async def lines(bot):
    return [tuple(row[name] for name in FIELDS) for row in await bot.rows("ci_line")]


async def waiting(bot):
    return sorted(
        row["key"] for row in await bot.rows("task") if (row["kind"], row["state"]) == ("sum", "waiting")
    )


async def test_many_changes_of_a_day_are_counted_once(bot):
    await deliver(bot, push(bot, "A"), *(job(bot, f"job {number}", "A") for number in range(9)))
    assert len(await waiting(bot)) == 2  # the branch, and its runners
    await bot.wait(60)
    assert [jobs for _, jobs, _ in await lines(bot)] == [9]
    done = [row["key"] for row in await bot.rows("task") if row["kind"] == "sum"]
    assert len(done) == 2
    assert await waiting(bot) == []


@SQLITE
async def test_a_day_whose_rows_are_deleted_keeps_its_sum(bot):
    """The oldest day that is kept has lost rows, and a late change must not show that."""
    await deliver(bot, push(bot, "A"), job(bot, "build", "A"), job(bot, "lint", "A"))
    await bot.wait(60)
    before = await lines(bot)
    bot.clock.advance(bot.context.settings.record_retention_days * DAY // 1000)
    await bot.send(*job(bot, "lint", "A", "failure", attempt=2))
    await bot.wait(60)
    assert await bot.rows("ci_cell") == []
    assert await waiting(bot) == []
    assert await lines(bot) == before


@SQLITE
async def test_what_is_rebuilt_is_counted_again(bot):
    async with bot.store.transaction() as tx:
        tx.replaying = True
        tx.enqueue("publish", "nothing is published again")
        sums.request(tx, BRANCHES, [SumPlace((1, "release/2.9"), 20_000)])
    async with bot.store.read() as tx:
        assert list(await sums.pending(tx, BRANCHES)) == [SumPlace((1, "release/2.9"), 20_000)]
        assert await sums.counted_until(tx, BRANCHES, [1]) == bot.clock.now()
        assert await sums.counted_until(tx, BRANCHES, [2]) is None
        assert await sums.counted_until(tx, BRANCHES, [1], first=20_001) is None


@SQLITE
async def test_a_sum_of_a_newer_version_waits_for_it(bot):
    task = Task({"id": 1, "kind": "sum", "key": "unheard/1/x", "attempts": 1, "cause": None})
    with pytest.raises(RetryLater, match="no sum 'unheard'"):
        await sums.recount_place(bot.context, task)


def as_of(page):
    """The time up to which a page says that its numbers are."""
    return re.search(r'as of <time [^>]*datetime="([^"]+)"', page)[1]


@SQLITE
async def test_a_page_says_up_to_when_its_sums_are_counted(bot):
    await deliver(bot, push(bot, "A"), job(bot, "build", "A"))
    await bot.wait(60)
    path = "/pytorch/pytorch/metrics"
    said = as_of((await bot.get(path))[1])
    bot.clock.advance(600)
    assert as_of((await bot.get(path))[1]) != said
    await bot.send(*job(bot, "build", "A", attempt=2))
    await bot.settle()
    changed = as_of((await bot.get(path))[1])
    bot.clock.advance(120)
    assert as_of((await bot.get(path))[1]) == changed
