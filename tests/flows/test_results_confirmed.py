"""Results of an L4 backend, which GitHub's own word confirms."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.flows.scenarios import green
from tests.harness import L2, L3, L4, UPSTREAM


@pytest.mark.logic
async def test_a_green_report_of_a_run_that_failed_is_a_failure_that_says_so(bot, github, pull):
    run = await github.start_run(L4)
    await green(bot, run.id)
    await github.finish_run(run, "failure")
    await bot.settle(horizon=30)
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]
    assert (status, conclusion) == ("completed", "failure")
    assert "concluded failure" in title


@pytest.mark.logic
async def test_a_run_that_nothing_of_ours_started_proves_nothing(bot, github, pull):
    run = await github.start_run(L4, event="push")
    await green(bot, run.id)
    await github.finish_run(run, "success")
    await bot.settle(horizon=30)
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]
    assert (status, conclusion) == ("completed", "failure")
    assert "started by push" in title


@pytest.mark.logic
async def test_the_run_of_another_repository_proves_nothing(bot, github, pull):
    run = await github.start_run(L3)
    await github.finish_run(run, "success")
    await green(bot, run.id)
    await bot.settle(horizon=200)
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]
    assert (status, conclusion) == ("completed", "failure")
    assert f"no run {run.id}" in title


@pytest.mark.logic
async def test_a_run_that_never_ends_times_out_after_the_entrys_own_patience(bot, github):
    await bot.list_backends(f"L4: {{tpu: {{repo: {L4}, job_timeout: 30m}}}}")
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    run = await github.start_run(L4)
    await green(bot, run.id)
    await bot.wait(20 * 60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("in_progress", None)
    await bot.wait(25 * 60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("completed", "timed_out")
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")


@pytest.mark.logic
async def test_without_confirmation_a_minute_of_silence_ends_it(bot, github):
    await bot.list_backends(f"L4: {{tpu: {{repo: {L4}, confirm: false}}}}")
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await green(bot, "build-7f3a")
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("in_progress", None)
    await bot.wait(130)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "success")
    assert not [call for call in github.calls if f"{L4}/actions/runs/" in call.path]


@pytest.mark.logic
async def test_a_run_that_a_dispatch_started_itself_is_the_only_one_that_may_report_on_it(bot, github):
    await bot.list_backends(f"L2: [{{repo: {L2}, dispatch: workflow, workflow_file: ci.yml}}]")
    await github.open_pull(UPSTREAM)
    await bot.settle()
    sent = bot.dispatch(L2)
    dispatch = SimpleNamespace(
        repo=sent.repo, client_payload=json.loads(sent.client_payload["client_payload"])
    )
    (started,) = [row["run_id"] for row in await bot.rows("oot_dispatch") if row["run_id"]]
    status, answer = await bot.report(dispatch, run_id="123456789")
    assert (status, answer["error"]) == (403, "forbidden")
    assert started in answer["detail"]
    assert (await bot.report(dispatch, run_id=started))[0] == 200
