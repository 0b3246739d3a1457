"""The line that says why a job failed, in the grid of its branch."""

from __future__ import annotations

from tests.ci.trunk.branch import push
from tests.harness import UPSTREAM


async def test_the_grid_shows_why_a_job_failed(bot, logs):
    job = await logs.arrives("FAILED t.py::test_x - <b>boom</b>\n", trusted=True)
    event, body = push(bot, job.run.head_sha)
    await bot.send(event, body)
    await bot.settle(horizon=60)
    _, answer = await bot.get(f"/api/ci/hud/{UPSTREAM}/main")
    (cell,) = answer["lines"][0]["cells"].values()
    _, failures = await bot.get("/api/ci/failures")
    assert (cell["line"], cell["sig"]) == (
        "FAILED t.py::test_x - <b>boom</b>",
        failures["failures"][0]["signature"],
    )
    _, page = await bot.get(f"/hud/{UPSTREAM}/main")
    assert "FAILED t.py::test_x - &lt;b&gt;boom&lt;/b&gt;" in page
    await logs.again(job)
    _, again = await bot.get(f"/api/ci/hud/{UPSTREAM}/main")
    assert again["lines"] == answer["lines"]
