"""An empty 200 is no log yet: GitHub is asked once more before that is what there is."""

from __future__ import annotations

import pytest

from tests.evidence.collect.test_collecting import LOG, ended_job, fetches
from tests.harness import UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE


async def test_a_log_that_came_empty_is_asked_for_again(bot, github, received):
    _, job = await ended_job(github, log="")
    await bot.settle(horizon=6)
    assert (await fetches(bot))["log", job.id][0] == "wanted"
    assert received == []
    job.log = LOG.encode()
    await bot.wait(700)
    assert (await fetches(bot))["log", job.id] == ("stored", None)
    ((_, answer, _),) = received
    assert answer["lines"] == 2


async def test_a_log_that_is_empty_twice_is(bot, github, received):
    _, job = await ended_job(github, log="")
    await bot.wait(700)
    assert (await fetches(bot))["log", job.id] == ("stored", None)
    assert [answer["lines"] for _, answer, _ in received] == [0]
    assert len([call for call in github.calls if call.path.endswith("/logs")]) == 2


@pytest.mark.parametrize("later", [False, True])
async def test_an_artifact_that_came_empty_is_asked_for_again(bot, github, received, later):
    run = await github.start_run(UPSTREAM, event="push")
    full = github.add_artifact(run, "test-results", {"a.xml": b"<a/>"})
    made = github.add_artifact(run, "test-results-empty", b"")
    if later:
        made.digest = full.digest
    await github.finish_run(run, "success")
    await bot.settle(horizon=15)
    assert (await fetches(bot))["artifact", made.id][0] == "wanted"
    if later:
        made.content = full.content
    await bot.wait(700)
    assert (await fetches(bot))["artifact", made.id][0] == ("parsed" if later else "broken")
    assert len(received) == 1 + later
