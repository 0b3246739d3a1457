"""What do commands do to a run that goes on, and to one that has not reported?"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.flows.scenarios import AUTHOR, BY_WORKFLOW, READS_INPUTS, WRITER, ours, say
from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = [SQLITE, pytest.mark.logic]


@pytest.fixture
async def by_workflow(bot, github):
    """A pull request, dispatched by starting a workflow; its run has not reported."""
    github.set_permission(UPSTREAM, WRITER, "write")
    github.set_file(L4, ".github/workflows/upstream.yml", READS_INPUTS)
    await bot.list_backends(BY_WORKFLOW.replace("dispatch:", "start_timeout: 10m, dispatch:"))
    pull = await github.open_pull(UPSTREAM, author=AUTHOR)
    await bot.settle()
    return pull


@pytest.fixture
async def running(bot, github):
    """A run of two jobs; one has failed, the other goes on."""
    github.set_permission(UPSTREAM, WRITER, "write")
    await bot.list_backends(f"L4:\n  tpu: {{{L4}: {{oncalls: dave, start_timeout: 10m}}}}\n")
    pull = await github.open_pull(UPSTREAM, author=AUTHOR)
    await bot.settle()
    run = await github.start_run(L4, event="repository_dispatch", name="CI")
    jobs = [await github.start_job(run, name) for name in ("build", "test")]
    for name in ("build", "test"):
        await bot.report(bot.dispatch(L4), status="in_progress", job=name, run_id=str(run.id))
    await bot.settle()
    return pull, run, jobs


def reruns(github):
    return [call.path for call in github.calls if call.path.endswith(("/rerun", "/rerun-failed-jobs"))]


@pytest.mark.parametrize("text", ["/oot cancel tpu", "/oot cancel"])
async def test_a_run_that_has_not_reported_is_cancelled_where_its_id_is_known(bot, github, by_workflow, text):
    pull, run = by_workflow, bot.dispatch(L4).run
    assert await say(bot, github, pull, text, AUTHOR) == ["eyes", "rocket"]
    assert run.conclusion == "cancelled"
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"] == (
        "completed", "cancelled", f"cancelled: run {run.id} was cancelled before it reported")  # fmt: skip
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")
    await bot.wait(1200)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][1] == "cancelled"  # not: never started
    _, page = await bot.get(f"/{UPSTREAM}/pull/{pull.number}")
    assert "was cancelled before it reported" in page
    _, counted = await bot.get(f"/api/oot/backends/{L4}")
    assert (counted["backend"]["cancelled"], counted["backend"]["never_started"]) == (1, 0)


async def test_what_such_a_run_reports_after_all_counts(bot, github, by_workflow):
    await say(bot, github, by_workflow, "/oot cancel tpu", AUTHOR)
    run = bot.dispatch(L4).run
    sent = bot.dispatch(L4)
    sent = replace(sent, client_payload=json.loads(sent.client_payload["client_payload"]))
    assert (await bot.report(sent, conclusion="failure", run_id=str(run.id)))[0] == 200
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, by_workflow.head_sha)["oot / tpu"][:2] == ("completed", "failure")


async def test_a_run_that_was_cancelled_so_can_be_asked_for_again(bot, github, by_workflow):
    await say(bot, github, by_workflow, "/oot cancel tpu", AUTHOR)
    assert await say(bot, github, by_workflow, "/oot run tpu") == ["eyes", "rocket"]
    assert len(github.dispatches) == 2
    assert bot.checks(UPSTREAM, by_workflow.head_sha)["oot / tpu"][0] == "queued"


async def test_failed_jobs_of_a_run_that_goes_on_are_run_again_once_it_has_ended(bot, github, running):
    pull, run, (build, test) = running
    await bot.report(bot.dispatch(L4), conclusion="failure", job="build", run_id=str(run.id))
    await github.finish_job(build, "failure")
    assert await say(bot, github, pull, "/oot rerun tpu", AUTHOR) == ["eyes", "rocket"]
    (command,) = await bot.rows("oot_command")
    assert command["answer"] == "tpu is run again as soon as its run has ended."
    asked = len(github.calls)
    await bot.wait(3600)  # longer than a re-run may take to report
    polls = [call for call in github.calls[asked:] if call.path.endswith(f"/actions/runs/{run.id}")]
    assert len(polls) <= 60
    assert reruns(github) == []
    await bot.report(bot.dispatch(L4), job="test", run_id=str(run.id))
    await github.finish_job(test, "success")
    await github.finish_run(run, "failure")
    await bot.settle()  # GitHub says that it has ended: nobody waits for the next question
    assert run.run_attempt == 2
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("queued", None)


@pytest.mark.parametrize("text", ["/oot rerun tpu", "/oot rerun tpu --all"])
async def test_a_run_that_goes_on_without_a_failure_is_not_run_again_behind_its_back(
    bot, github, running, text
):
    pull, run, (build, test) = running
    assert await say(bot, github, pull, text, AUTHOR) == ["eyes", "confused"]
    assert "nothing of tpu has failed, and it still runs" in await ours(bot, github, pull)
    for name in ("build", "test"):
        await bot.report(bot.dispatch(L4), job=name, run_id=str(run.id))
    for job in (build, test):
        await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await bot.wait(300)
    assert run.run_attempt == 1
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("completed", "success")
