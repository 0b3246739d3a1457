"""Does a pull request with a long past cost no more than one that was just opened, and is nothing of it forgotten?"""

from __future__ import annotations

import itertools
import tracemalloc

import pytest

from bot.oot.results import dispatches, jobs
from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

HEADS, JOBS = 60, 50
ADDRESS = f"/api/oot/pulls/{UPSTREAM}/1"


async def grow_old(bot, *, backends=1, most=JOBS, **said):
    """Give the pull request earlier heads, on each of which some backends have a failed run of so many jobs."""
    like = bot.dispatch(L4).client_payload["delivery_id"]
    rows = await bot.rows("oot_dispatch")
    told = next(row for row in rows if (row["delivery_id"], row["backend"]) == (like, L4))
    job = next(row for row in await bot.rows("oot_workflow_job") if row["dispatch_id"] == told["id"])
    async with bot.context.store.transaction() as tx:
        for head, backend in itertools.product(range(HEADS), range(backends)):
            identifier, name = f"{head:016}{backend:016}", f"org/old-{backend}"
            at = {"delivery_id": f"old {head}", "head_sha": f"{head:040}"}
            whose = {"id": identifier, "backend": name, "backend_key": name}
            await dispatches.add_dispatch(
                tx, told | at | whose | {"created_at": told["created_at"] - HEADS + head}
            )
            like = job | said | at | {"dispatch_id": identifier, "downstream_repo": name}
            made = [like | {"job_name": f"job {one}"} for one in range(most)]
            await jobs.add_jobs(
                tx, {key: row | {"job_key": key} for row in made for key in [jobs.job_key(row)]}
            )


async def peak(doing):
    """Return the bytes that something needed at most, above what there was."""
    tracemalloc.start()
    try:
        await doing
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@SQLITE
async def test_what_is_read_of_a_pull_request_does_not_grow_with_its_past(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle(horizon=90)

    async def asked():
        await github.comment(pull, "/oot status", pull.author)
        await bot.settle(horizon=90)

    young = await peak(asked())
    await grow_old(bot)
    assert await peak(asked()) < young + 4_000_000  # bytes; all heads at once take 8,500,000
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")


@pytest.mark.logic
async def test_as_json_it_has_so_many_jobs_and_says_that_there_are_more(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    _, young = await bot.get(ADDRESS)
    assert (len(young["jobs"]), young["more"]) == (1, False)
    await grow_old(bot)
    _, old = await bot.get(ADDRESS)
    assert (len(old["jobs"]), old["more"], len(old["heads"])) == (1_000, True, 1 + HEADS)
    _, few = await bot.get(f"{ADDRESS}?limit=7")
    assert few["jobs"] == old["jobs"][-7:]
    _, one = await bot.get(f"{ADDRESS}?sha={0:040}")
    assert (len(one["jobs"]), one["more"]) == (JOBS, False)
    assert one["backends"][0]["state"] == "failure"


@SQLITE
async def test_of_very_many_dispatches_only_the_shown_heads_are_judged(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await grow_old(bot, backends=6, most=1)
    _, body = await bot.get(f"{ADDRESS}?sha={0:040}")
    counts = {head["sha"]: head["backends"] for head in body["heads"]}
    assert counts.pop(f"{0:040}") == {"failure": 6}
    assert set(map(str, counts.values())) == {"None"}
    status, page = await bot.get(f"/{UPSTREAM}/pull/1?sha={0:040}")
    assert (status, page.count("job 0") >= 6) == (200, True)


async def test_of_very_many_failed_tests_those_of_the_newest_jobs_are_shown(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await grow_old(
        bot, most=20, failed_tests=1, failed_tests_json=[{"name": "x" * 1_000, "message": "y" * 9_000}]
    )
    for path in (ADDRESS, "/api/oot/backends/org/old-0?limit=500", f"/api/oot/commits/{UPSTREAM}/00000000"):
        _, body = await bot.get(path)
        told = [bool(row["failed_tests_json"]) for row in body["jobs"]]
        assert len(body["jobs"]) >= 200
        assert sum(told) * 10_000 <= 8_000_000
        assert any(told)
    status, page = await bot.get("/oot/org/old-0")
    assert (status, len(page) < 200_000) == (200, True)
