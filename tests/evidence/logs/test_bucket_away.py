"""A bucket that does not answer: pages say so, and everything else goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.evidence.collect import remote_blobs
from bot.jobs.settings import CollectSettings
from tests import harness
from tests.evidence.collect import bucket
from tests.evidence.logs.jobs import Logs
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE


@pytest.fixture
def away(monkeypatch):
    """A bucket with what was collected; leaving the context takes its server away."""
    monkeypatch.setattr(remote_blobs, "REPEATED", 0)
    serving = bucket.serving()
    for name, value in serving.__enter__().items():
        monkeypatch.setenv(name, value)
    yield serving
    serving.__exit__(None, None, None)


async def test_the_log_is_answered_503_with_the_reason_and_the_verdict_is_shown(
    settings, github, issuer, clock, away
):
    options = CollectSettings(blobs=f"s3://{bucket.NAME}/x")
    chosen = replace(settings, of_features={CollectSettings: options})
    async with harness.running(chosen, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        job = await Logs(bot, github).arrives("FAILED t.py::test_x\n")
        page = f"/{UPSTREAM}/job/{job.id}"
        assert (await bot.get(f"{page}/log"))[0] == 200
        away.__exit__(None, None, None)
        bot.clock.advance(60)
        for path in (f"{page}/log", f"{page}/log.txt", f"/api/ci/logs/{UPSTREAM}/{job.id}",
                     f"/{UPSTREAM}/commit/{job.run.head_sha}/logs?q=x"):  # fmt: skip
            status, said = await bot.get(path, headers={"Accept": "text/html"})
            assert (status, "the store that keeps them does not answer" in str(said)) == (503, True), path
            assert bucket.NAME not in str(said)  # where logs are stored is not shown
        assert "FAILED t.py::test_x" in (await bot.get(page))[1]
        await github.open_pull(UPSTREAM)
        await bot.settle()
        assert len(await bot.rows("oot_dispatch")) == 4
