"""Failures of pull requests that the default branch has, too: a word on the job's page, with what shows it."""

from __future__ import annotations

from tests.ci.trunk.branch import push
from tests.harness import UPSTREAM


async def test_a_failure_that_the_branch_has_is_known(bot, logs):
    broken = await logs.arrives("FAILED t.py::test_x\n", trusted=True)
    same = await logs.arrives("FAILED t.py::test_x\n")
    assert "known:" not in (await bot.get(f"/{UPSTREAM}/job/{same.id}"))[1]  # not a commit of the branch yet
    event, body = push(bot, broken.run.head_sha)
    await bot.send(event, body)
    await bot.settle(horizon=15)
    bot.clock.advance(60)  # the page may be kept for some seconds
    _, page = await bot.get(f"/{UPSTREAM}/job/{same.id}")
    assert f"known: the same job failed with the same captures on main at {broken.run.head_sha[:12]}" in page
    assert f'href="/{UPSTREAM}/job/{broken.id}"' in page
    other = await logs.arrives("FAILED t.py::test_y\n")
    assert "known:" not in (await bot.get(f"/{UPSTREAM}/job/{other.id}"))[1]
    assert "known:" not in (await bot.get(f"/{UPSTREAM}/job/{broken.id}"))[1]
