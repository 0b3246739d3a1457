"""An open pull request on `crcr-demotion/<repo>` stops an L3 backend's new check runs, as today."""

from __future__ import annotations

import pytest

from tests.harness import L3, L4, UPSTREAM
from tests.interop import client
from tests.interop.client import Client

pytestmark = pytest.mark.logic

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


@pytest.mark.parametrize("preset", ["crcr", None])
async def test_a_check_run_that_has_begun_ends_though_its_run_is_repeated_meanwhile(
    bot, github, pull, preset
):
    (build,) = steps(bot, pull, "build")
    build.audience = "ootbot"
    again = Client(bot, L3, build.client_payload, job="build", run_attempt="2", audience="ootbot")
    await build.started()
    await bot.settle()
    demotion = await demote(bot, github)
    await again.started()
    await again.ended("success")
    await bot.settle()
    name = f"crcr/{L3}/CI/build" if preset else "oot / npu"
    begun = [run for run in github.check_runs_all(UPSTREAM, pull.head_sha) if run.name == name]
    ended = (
        "neutral" if preset else "success"
    )  # a new one would have taken its place; or it shows the newest run
    assert [(run.status, run.conclusion) for run in begun] == [("completed", ended)]
    await github.close(demotion)
    await bot.settle()
    await Client(bot, L3, build.client_payload, job="test", run_attempt="2", audience="ootbot").ended(
        "success"
    )
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)[name][:2] == ("completed", "success")


async def test_what_a_stranger_writes_into_a_pull_request_demotes_nobody(bot, github, pull):
    """Its fork may be gone, have the name of upstream, or be where the pull request is."""
    theirs = await demote(bot, github, from_fork=True)
    (*_, opened) = [one for one in github.deliveries if one.event == "pull_request"]
    body, upstream = opened.payload["pull_request"], opened.payload["repository"]
    fork = body["head"]["repo"] | {"full_name": "mallory/pytorch"}
    gone = body | {"head": body["head"] | {"repo": None}}
    named = body | {"head": body["head"] | {"repo": fork | {"full_name": UPSTREAM}}}
    within = body | {"head": body["head"] | {"repo": fork}, "base": body["base"] | {"repo": fork}}
    for number, (told, where) in enumerate([(gone, upstream), (named, upstream), (within, fork)]):
        told |= {"id": 77_000 + number, "number": 7_700 + number}
        await bot.send("pull_request", opened.payload | {"pull_request": told, "repository": where})
    await bot.settle()
    (build,) = steps(bot, pull, "build")
    await build.ended()
    await bot.settle()
    assert shown(bot, pull) == {"build": "success"}
    assert theirs.from_fork


async def test_what_demotes_nobody(bot, github, pull):
    await demote(bot, github, from_fork=True)  # anyone can have such a branch
    for repo in ("org/other", f"{L3}-2", ""):
        await demote(bot, github, repo)
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
