"""A failure of a test that an issue disables: from the issue to the list, the verdict and the comment."""

from __future__ import annotations

import pytest

from tests.evidence.disabled.issues import deliver, issue, may_write, platforms
from tests.evidence.tests.reported import JOB, case, leave, xml
from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE
HORIZON = 300
TEST = "test_add (__main__.TestOps)"


async def fails_on_tpu(bot, github):
    """A pull request on which a backend fails a test that passed on the branch before; returns it."""
    await github.push(UPSTREAM)
    await bot.settle(horizon=HORIZON)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    run = await github.start_run(L4, event="repository_dispatch")
    job = await github.start_job(run, JOB.replace("cuda", "tpu"))
    await bot.report(bot.dispatch(L4), conclusion="failure", run_id=str(run.id))
    await leave(github, run, job, {"a.xml": xml(case("test_add", "failed"))}, conclusion="failure")
    await bot.settle(horizon=HORIZON)
    return pull


async def verdict(bot):
    (failure,) = await bot.rows("test_failure")
    return failure["verdict"]


def said(github, pull):
    """What the comment says of the test."""
    (body,) = [comment.body for comment in github.comments(pull) if comment.app is not None]
    (line,) = [line for line in body.splitlines() if line.startswith("- ") and "test_add" in line]
    return line


@pytest.mark.parametrize("first", ["issue", "failure"])
async def test_an_issue_disables_a_test_until_it_is_closed(bot, github, first):
    may_write(bot, "erin")
    opened = issue(bot, 1, f"DISABLED {TEST}", "Platforms: tpu")
    if first == "issue":
        await deliver(bot, opened)
    pull = await fails_on_tpu(bot, github)
    if first == "failure":
        assert await verdict(bot) == "no_baseline"
        await deliver(bot, opened)
        await bot.settle(horizon=HORIZON)
    assert await platforms(bot) == {TEST: ["tpu"]}
    assert await verdict(bot) == "disabled"
    assert "disabled" in said(github, pull)
    closed = issue(bot, 1, f"DISABLED {TEST}", "Platforms: tpu", state="closed", at=60)
    await deliver(bot, closed)
    await bot.settle(horizon=HORIZON)
    assert await platforms(bot) == {}
    assert await verdict(bot) == "no_baseline"
    assert "disabled" not in said(github, pull)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"by": "mallory"}, f"mallory has no write access to {UPSTREAM}"),
        ({"body": "Platforms: rocm"}, None),
        ({"body": "Platforms: toaster"}, "no platform is left, so nothing is disabled"),
    ],
)
async def test_an_issue_that_does_not_disable_it_here_changes_nothing(bot, github, change, reason):
    may_write(bot, "erin")
    await deliver(bot, issue(bot, 1, f"DISABLED {TEST}", **{"body": "Platforms: tpu"} | change))
    pull = await fails_on_tpu(bot, github)
    assert await verdict(bot) == "no_baseline"
    assert "disabled" not in said(github, pull)
    if reason:
        _, page = await bot.get(f"/{UPSTREAM}/disabled")
        assert reason in page
