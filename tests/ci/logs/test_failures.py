"""Failures that are the same: counted, with days and samples, as page and JSON."""

from __future__ import annotations

from tests.harness import UPSTREAM


async def test_failures_that_are_the_same_stand_together(bot, logs):
    for branch in ("a", "b"):
        job = await logs.arrives("make: *** [Makefile:3: all] Error 2\n", branch=branch)
    await logs.arrives("FAILED t.py::test_x\n")
    status, page = await bot.get("/failures")
    assert status == 200
    assert page.index("make: all") < page.index("pytest failure: t.py::test_x")
    _, answer = await bot.get("/api/ci/failures")
    assert next((one["title"], one["jobs"], one["prs"]) for one in answer["failures"]) == ("make: all", 2, 2)
    assert (answer["classified_jobs"], answer["named_jobs"]) == (3, 3)
    signature = answer["failures"][0]["signature"]
    _, answer = await bot.get(f"/api/ci/failures/{signature}")
    assert [day["jobs"] for day in answer["by_day"]] == [2]
    assert answer["samples"][0]["job_id"] == job.id
    _, page = await bot.get(f"/failures/{signature}")
    assert f"/{UPSTREAM}/job/{job.id}" in page
    assert (await bot.get("/api/ci/failures?kind=test"))[1]["failures"][0]["rule"] == "pytest failure"
    assert (await bot.get("/api/ci/failures?repo=org/unknown"))[1]["failures"] == []
    assert (await bot.get(f"/failures/{'0' * 64}"))[0] == 404
