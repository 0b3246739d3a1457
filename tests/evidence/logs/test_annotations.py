"""What GitHub notes beside a job decides where its log does not say why it failed."""

from __future__ import annotations

import pytest

from bot.demo.github.models import Output
from bot.evidence.logs import reclassify
from tests.harness import UPSTREAM

CANCELED = "2026-11-22T10:00:00.1234567Z ##[error]The operation was canceled.\n"
OVER = "The job has exceeded the maximum execution time of 6h0m0s"
LOST = "The self-hosted runner: npu-7 lost communication with the server. Verify the machine is running."
LEFT = {"path": ".github", "start_line": 1, "end_line": 1, "annotation_level": "failure"}


async def job_with(bot, github, log, *messages, conclusion="cancelled", **changed):
    run = await github.start_run(UPSTREAM, event="pull_request", head_branch="topic")
    job = await github.start_job(run, "build")
    notes = tuple(LEFT | {"message": message} | changed for message in messages)
    job.check_run.output = Output(title=None, summary=None, text=None, annotations=notes)
    await github.finish_job(job, conclusion, log=log)
    await bot.settle(horizon=15)
    return job


@pytest.mark.logic
@pytest.mark.parametrize(
    ("message", "rule", "kind"), [(OVER, "Job timed out", "timeout"), (LOST, "Runner lost", "infra")]
)
async def test_a_note_beside_the_job_says_why_it_was_cancelled(bot, github, logs, message, rule, kind):
    job = await job_with(bot, github, CANCELED, "Process completed with exit code 1.", f"{message}\nmore")
    found = await logs.verdicts(job)
    assert [(one["rule"], one["kind"], one["line_num"]) for one in found] == [
        (rule, kind, None), ("Cancelled", "cancel", 1)
    ]  # fmt: skip
    assert found[0]["line"] == message
    assert [call.path for call in github.calls if call.path.endswith("/annotations")] == [
        f"/repos/{UPSTREAM}/check-runs/{job.id}/annotations"
    ]
    _, page = await bot.get(f"/{UPSTREAM}/job/{job.id}")
    assert f"{kind} · {message}" in page
    assert "noted by GitHub beside the job" in page
    async with bot.store.transaction() as tx:
        await reclassify.enqueue_due(tx, bot.context.settings)
    await bot.settle(horizon=60)
    assert (await logs.verdicts(job))[0]["rule"] == rule


async def test_a_failed_test_stays_the_verdict_where_a_note_says_less(bot, github, logs):
    failed = "FAILED tests/test_a.py::test_b - assert 2 == 3\n"
    for messages, changed in (
        (["Process completed with exit code 1."], {}),
        ([OVER], {"annotation_level": "notice"}),
    ):
        job = await job_with(bot, github, failed, *messages, conclusion="failure", **changed)
        assert (await logs.verdicts(job))[0]["rule"] == "pytest failure"


async def test_a_log_is_classified_where_the_notes_cannot_be_read(bot, github, logs):
    github.faults.add(path="/annotations", status=404, times=5)
    job = await job_with(bot, github, CANCELED, OVER)
    assert (await logs.verdicts(job))[0]["rule"] == "Cancelled"


@pytest.mark.logic
async def test_a_lost_runner_is_the_verdict_on_a_job_that_left_no_log(bot, github, logs):
    github.faults.add(path="/logs", status=404, times=100)
    job = await job_with(bot, github, CANCELED, LOST, conclusion="failure")
    assert await logs.verdicts(job) == []
    await bot.settle(horizon=8000)
    (found,) = await logs.verdicts(job)
    assert (found["rule"], found["kind"], found["line_num"]) == ("Runner lost", "infra", None)
    _, page = await bot.get(f"/{UPSTREAM}/job/{job.id}")
    assert f"infra · {LOST} · noted by GitHub beside the job" in page
    assert "the log as plain text" not in page
