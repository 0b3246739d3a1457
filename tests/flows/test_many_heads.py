"""Does a pull request with a long past cost no more than one that was just opened, and is nothing of it forgotten?"""

from __future__ import annotations

import tracemalloc

from bot.store import dispatches, jobs
from tests.harness import L4, UPSTREAM

HEADS, JOBS = 60, 50


async def grow_old(bot, pull):
    """Give a pull request earlier heads, each with a failed run of many jobs."""
    like = bot.dispatch(L4).client_payload["delivery_id"]
    told = next(
        row for row in await bot.rows("oot_dispatch") if (row["delivery_id"], row["backend"]) == (like, L4)
    )
    job = next(row for row in await bot.rows("oot_workflow_job") if row["dispatch_id"] == told["id"])
    async with bot.context.store.transaction() as tx:
        for n in range(HEADS):
            place = {"id": f"{n:032}", "delivery_id": f"old {n}", "head_sha": f"{n:040}"}
            old = told | place | {"created_at": told["created_at"] - HEADS + n}
            await dispatches.add(tx, old)
            place["dispatch_id"] = place.pop("id")
            made = [job | place | {"job_name": f"job {one}"} for one in range(JOBS)]
            await jobs.add(tx, {key: row | {"job_key": key} for row in made for key in [jobs.job_key(row)]})


async def peak(doing):
    """Return the bytes that something needed at most, above what there was."""
    tracemalloc.start()
    try:
        await doing
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_what_is_read_of_a_pull_request_does_not_grow_with_its_past(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle(horizon=90)

    async def asked():
        await github.comment(pull, "/oot status", pull.author)
        await bot.settle(horizon=90)

    young = await peak(asked())
    await grow_old(bot, pull)
    assert await peak(asked()) < young + 4_000_000  # bytes; all heads at once take 8,500,000
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")
