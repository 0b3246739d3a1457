"""The re-run buttons of our check runs: what each runs again, and when a press runs nothing."""

from __future__ import annotations

import json

import pytest

from tests.harness import L3, L4, UPSTREAM

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
async def pull(bot, github):
    made = await github.open_pull(UPSTREAM, author="octocat", labels=["ciflow/oot/npu"])
    await bot.settle()
    return made


async def failed(bot, github, repo=L4):
    """A run of which one job failed and one passed."""
    run = await github.start_run(repo, event="repository_dispatch", name="CI")
    for name, conclusion in (("build", "success"), ("test", "failure")):
        job = await github.start_job(run, name)
        await bot.report(bot.dispatch(repo), conclusion=conclusion, job=name, run_id=str(run.id))
        await github.finish_job(job, conclusion)
    await github.finish_run(run, "failure")
    await bot.settle(horizon=20)
    return run


def check(github, pull, name="oot / tpu"):
    return [one for one in github.check_runs(UPSTREAM, pull.head_sha) if one.name == name][-1]


def requested_reruns(github):
    """The re-runs GitHub was asked for."""
    paths = [call.path for call in github.calls if "/rerun" in call.path]
    return [path.rpartition("/")[2] for path in paths]


@pytest.mark.parametrize(
    ("identifier", "expected"), [("rerun-failed", "rerun-failed-jobs"), ("rerun-all", "rerun")]
)
async def test_each_button_runs_again_what_it_says_and_once_when_pressed_twice(
    bot, github, pull, identifier, expected
):
    run = await failed(bot, github)
    for _ in range(2):
        await github.request_action(check(github, pull).id, identifier)
    await bot.settle(horizon=20)
    assert (requested_reruns(github), run.run_attempt) == ([expected], 2)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("queued", None)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("in_progress", None)


async def test_an_unknown_button_runs_nothing(bot, github, pull):
    await failed(bot, github)
    await github.request_action(check(github, pull).id, "rerun-all")
    body = json.loads(json.dumps(github.deliveries[-1].payload))
    await bot.settle(horizon=20)
    before = len(requested_reruns(github))
    for word in ("dance", "", None, 7, "RERUN-ALL"):
        body["requested_action"]["identifier"] = word
        await bot.send("check_run", body)
    await bot.settle(horizon=20)
    assert len(requested_reruns(github)) == before


@pytest.mark.parametrize("action", ["rerequested", "requested_action"])
async def test_a_check_of_another_app_runs_nothing_though_it_has_our_name(bot, github, pull, action):
    await failed(bot, github)
    await github.request_action(check(github, pull).id, "rerun-all")
    body = json.loads(json.dumps(github.deliveries[-1].payload))
    await bot.settle(horizon=20)
    before = len(requested_reruns(github))
    body["action"] = action
    body["check_run"]["app"]["id"] += 1
    await bot.send("check_run", body)
    await bot.settle(horizon=20)
    assert len(requested_reruns(github)) == before


async def test_all_checks_run_again_are_every_backend_that_failed(bot, github, pull):
    runs = [await failed(bot, github), await failed(bot, github, L3)]
    for _ in range(2):
        await github.rerequest_suite(UPSTREAM, pull.head_sha, github.app)
    await bot.settle(horizon=20)
    assert [run.run_attempt for run in runs] == [2, 2]
    assert requested_reruns(github) == ["rerun-failed-jobs"] * 2
    assert {name: one[:2] for name, one in bot.checks(UPSTREAM, pull.head_sha).items()} == {
        "oot / gate": ("in_progress", None),
        "oot / npu": ("queued", None),
        "oot / tpu": ("queued", None),
    }


async def test_another_apps_suite_run_again_runs_nothing_of_ours(bot, github, pull):
    await failed(bot, github)
    await github.rerequest_suite(UPSTREAM, pull.head_sha, github.app)
    body = json.loads(json.dumps(github.deliveries[-1].payload))
    await bot.settle(horizon=20)
    before = len(requested_reruns(github))
    body["check_suite"]["app"]["id"] += 1
    await bot.send("check_suite", body)
    await bot.settle(horizon=20)
    assert len(requested_reruns(github)) == before


async def test_a_check_we_did_not_make_runs_nothing(bot, github, pull):
    await failed(bot, github)
    await github.request_action(check(github, pull).id, "rerun-all")
    body = json.loads(json.dumps(github.deliveries[-1].payload))
    await bot.settle(horizon=20)
    before = len(requested_reruns(github))
    body["check_run"]["id"] += 4711
    await bot.send("check_run", body)
    await bot.settle(horizon=20)
    assert len(requested_reruns(github)) == before
