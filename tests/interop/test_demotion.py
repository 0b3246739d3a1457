"""An open pull request on `crcr-demotion/<repo>` stops an L3 backend's new check runs, as today."""

from __future__ import annotations

import pytest

from tests.harness import L3, L4, UPSTREAM
from tests.interop import client
from tests.interop.client import Client
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]

LABEL = "ciflow/crcr/npu"


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, labels=[LABEL])
    await bot.settle()
    return made


def shown(bot, pull):
    """Return how the jobs of backends stand on a pull request."""
    return {
        name.partition("/CI/")[2]: seen[1] or seen[0]
        for name, seen in bot.checks(UPSTREAM, pull.head_sha).items()
        if "crcr/" in name
    }


async def demote(bot, github, repo=L3, **more):
    made = await github.open_pull(
        UPSTREAM, title=f"Demote {repo}", head_ref=f"crcr-demotion/{repo}", **({"from_fork": False} | more)
    )
    await bot.settle()
    return made


def steps(bot, pull, *jobs, repo=L3):
    (dispatch,) = [
        one for one in bot.github.dispatches
        if one.repo.full_name == repo and one.client_payload["payload"].get("number") == pull.number
    ]  # fmt: skip
    first = client.of(bot, dispatch, job=jobs[0])
    return [first, *(Client(bot, repo, first.client_payload, job=job) for job in jobs[1:])]


async def test_no_check_run_begins_until_it_is_closed(bot, github, pull):
    build, test, last = steps(bot, pull, "build", "test", "last")
    await build.started()
    await bot.settle()
    demotion = await demote(bot, github)
    await build.ended("failure")
    await test.ended("failure")
    await bot.settle()
    assert shown(bot, pull) == {"build": "failure"}  # one that had begun is finished
    _, page = await bot.get(f"/oot/{L3}")
    assert f"{UPSTREAM}#{demotion.number} proposes to demote it" in page
    _, answer = await bot.get(f"/api/oot/backends/{L3}")
    assert {job["job_name"] for job in answer["jobs"]} == {"build", "test"}  # all else goes on
    await github.close(demotion)
    await bot.settle()
    await last.ended()
    await bot.settle()
    assert shown(bot, pull) == {"build": "failure", "test": "failure", "last": "success"}
    assert "proposes to demote it" not in (await bot.get(f"/oot/{L3}"))[1]


@pytest.mark.parametrize(
    ("repo", "more"),
    [
        (L3, {"from_fork": True}),  # anyone can have such a branch
        ("org/other", {}),
        (f"{L3}-2", {}),
        ("", {}),
    ],
    ids=["a stranger's fork", "of another", "of one with a longer name", "of none"],
)
async def test_what_demotes_nobody(bot, github, pull, repo, more):
    await demote(bot, github, repo, **more)
    (build,) = steps(bot, pull, "build")
    await build.ended()
    await bot.settle()
    assert shown(bot, pull) == {"build": "success"}
    assert "proposes to demote it" not in (await bot.get(f"/oot/{L3}"))[1]


async def test_a_gate_is_not_lifted_by_it(bot, github, pull):
    await demote(bot, github, L4)
    (build,) = steps(bot, pull, "build", repo=L4)
    await build.ended("failure")
    await bot.settle()
    assert shown(bot, pull) == {"build": "failure"}
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1] == "failure"
