"""The line that says why a job failed, in the grid of its branch."""

from __future__ import annotations

import pytest

from tests.harness import UPSTREAM
from tests.jobs.branch import push
from tests.pages.page_checks import page_text


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


async def test_numbers_of_the_branch_tell_failures_by_kind(bot, logs, github):
    """What no rule knows is unclassified; a failure of the infrastructure breaks no job."""
    lost = "##[error]The runner has received a shutdown signal.\n"
    for log in (lost, "nothing that any rule knows\n", "FAILED t.py::test_x - boom\n"):
        await github.push(UPSTREAM)
        await logs.arrives(log, trusted=True)
    await bot.settle()
    await bot.wait(60)
    whole = (await bot.get(f"/api/ci/metrics/{UPSTREAM}"))[1]["whole"]
    assert whole["failures"] == {"infra": 1, "none": 1, "test": 1}
    assert whole["unclassified_share"] == pytest.approx(1 / 3)
    text = await page_text(bot, f"/{UPSTREAM}/metrics")
    assert "Failures unclassified 33.3 %" in text
    assert "infra 1 no rule matches 1 test 1" in text
    (reliability,) = (await bot.get(f"/api/ci/reliability/{UPSTREAM}"))[1]["jobs"]
    assert (reliability["infra"], reliability["broken"], reliability["flaky"]) == (1, 0, 2)
    grid = (await bot.get(f"/api/ci/hud/{UPSTREAM}/main"))[1]
    assert [cell["kind"] for line in grid["lines"] for cell in line["cells"].values()] == [
        "test",
        "none",
        "infra",
    ]
    assert ": failure, infrastructure: ##[error]The runner" in (await bot.get(f"/hud/{UPSTREAM}/main"))[1]
