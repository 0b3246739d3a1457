"""A sink that is away, slow, forbidden or of another mind: marks wait, endpoints answer, nothing is lost."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from bot.sinks import changes, queue_rows
from bot.sinks.sending import backoff
from tests.evidence.collect.bucket import NAME
from tests.harness import UPSTREAM
from tests.serving import SQLITE
from tests.sinks import faulty_bucket

URL = f"s3://{NAME}/of/the-bot"
JOBS = {
    "copies": {"kind": "objects", "url": URL, "layout": "upstream", "what": ["workflow_job", "deliveries"]}
}
pytestmark = [
    SQLITE,
    pytest.mark.parametrize("tables", [JOBS], indirect=True, ids=["bucket"]),
]


@pytest.fixture
async def bucket(monkeypatch):
    async with faulty_bucket.serving() as made:
        for name, value in made.variables.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
async def bot(bucket, bot):
    return bot


async def ran_jobs(github, count=1, names=("build",)):
    run = await github.start_run(UPSTREAM, event="pull_request")
    jobs = []
    for number in range(count):
        job = await github.start_job(run, f"{names[number % len(names)]} {number}")
        await github.finish_job(job, "success")
        jobs.append(job)
    return jobs


def sent_jobs(bucket):
    """The conclusions of the jobs that arrived, by id."""
    prefix = f"of/the-bot/workflow_job/{UPSTREAM}/"
    found = {key.removeprefix(prefix): body for key, body in bucket.objects.items() if key.startswith(prefix)}
    return {int(key): json.loads(gzip.decompress(body))["conclusion"] for key, body in found.items()}


async def state_of(bot, what="workflow_job"):
    (row,) = [row for row in await bot.rows("sink_state") if row["what"] == what]
    return row


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("busy", "503"),
        ("forbidden", "AccessDenied"),
        ("expired", "ExpiredToken"),
    ],
)
async def test_a_sink_that_is_away_gets_everything_once_it_is_back(bot, github, bucket, fault, words):
    bucket.fault = fault
    jobs = await ran_jobs(github, 3)
    await bot.settle(horizon=11)
    assert sent_jobs(bucket) == {}
    row = await state_of(bot)
    assert (words in row["error"], row["failures"] > 0) == (True, True)
    assert "a secret" not in row["error"]
    assert len([row for row in await bot.rows("sink_mark") if row["what"] == "workflow_job"]) == 3
    bucket.fault = ""
    await bot.settle(horizon=400)
    assert sent_jobs(bucket) == dict.fromkeys((job.id for job in jobs), "success")
    assert await bot.rows("sink_mark") == []
    assert (await state_of(bot))["error"] is None


async def test_a_sink_that_is_away_is_left_alone_for_longer_and_longer(bot, github, bucket):
    assert [backoff(failures) for failures in (0, 1, 2, 3, 8, 9, 100)] == [1, 2, 4, 8, 256, 300, 300]
    bucket.fault = "forbidden"
    await ran_jobs(github)
    await bot.settle(horizon=11)
    row, calls = await state_of(bot), bucket.calls
    assert (row["due_at"] - bot.clock.now()) / 1000 == pytest.approx(300, abs=11)
    await ran_jobs(github)
    await bot.settle(horizon=60)
    assert bucket.calls == calls, "what changes meanwhile is only marked"


async def test_a_connection_cut_after_the_object_was_stored_does_no_harm(bot, github, bucket):
    bucket.fault = "cut"
    jobs = await ran_jobs(github, 2)
    await bot.settle(horizon=11)
    bucket.fault = ""
    await bot.settle(horizon=400)
    assert sent_jobs(bucket) == dict.fromkeys((job.id for job in jobs), "success")
    assert await bot.rows("sink_mark") == []


async def test_a_bucket_that_is_missing_is_named_with_the_command_that_makes_it(bot, github, bucket):
    bucket.fault = "gone"
    jobs = await ran_jobs(github)
    await bot.settle(horizon=11)
    row = await state_of(bot)
    assert row["stopped"] == f"there is no s3://{NAME}: make it with `aws s3 mb s3://{NAME}`"
    bucket.fault = ""
    await bot.settle(horizon=400)
    assert sent_jobs(bucket) == {}, "it waits for `resume`"
    async with bot.store.transaction() as tx:
        await queue_rows.resume_queue(tx, "copies", "workflow_job")
        tx.enqueue("sink", "copies/workflow_job")
    await bot.settle()
    assert sent_jobs(bucket) == {jobs[0].id: "success"}


async def test_one_refused_row_is_kept_apart_and_can_be_sent_again(bot, github, bucket):
    jobs = await ran_jobs(github, 5)
    bucket.refused = str(jobs[2].id)
    await bot.settle(horizon=400)
    others = {job.id: "success" for job in jobs if job is not jobs[2]}
    assert sent_jobs(bucket) == others
    (refused,) = [row for row in await bot.rows("sink_refused") if row["what"] == "workflow_job"]
    assert json.loads(refused["key"]) == [1_000_003, jobs[2].id]
    assert "KeyTooLongError" in refused["error"]
    bucket.refused = ""
    assert sent_jobs(bucket) == others
    async with bot.store.transaction() as tx:
        await changes.note_changes(tx, [("copies", "workflow_job", refused["key"])])
        tx.enqueue("sink", "copies/workflow_job")
    await bot.settle()
    assert sent_jobs(bucket) == others | {jobs[2].id: "success"}
    assert [row for row in await bot.rows("sink_refused") if row["what"] == "workflow_job"] == []


async def test_a_slow_sink_delays_no_webhook_and_no_other_task(bot, github, bucket):
    bucket.fault = "slow"
    await ran_jobs(github)
    await bot.settle()
    bot.clock.advance(11)
    sending = asyncio.create_task(bot.worker.step())
    await bucket.asked.wait()
    status, _ = await bot.send("ping", {"zen": "Keep it."})
    assert (status, sending.done()) == (202, False)
    assert await bot.worker.apply() == 1
    sending.cancel()


async def test_the_operator_sees_what_is_wrong(bot, github, bucket):
    bucket.fault = "busy"
    await ran_jobs(github)
    await bot.settle(horizon=11)
    bot.clock.advance(700)
    _, ready = await bot.get(
        "/readyz", headers={"Authorization": f"Bearer {bot.context.settings.admin_token}"}
    )
    (note,) = [note for note in ready["notes"] if "copies: workflow_job" in note]
    assert "rows wait, the oldest for 11 min" in note
    _, ready = await bot.get("/readyz")
    assert "sink copies: workflow_job: see /admin or `ootbot sink list`" in ready["notes"]
    _, text = await bot.get("/metrics")
    (lag,) = [
        line
        for line in text.splitlines()
        if line.startswith('ootbot_sink_lag_seconds{sink="copies",what="workflow_job"')
    ]
    assert float(lag.split()[-1]) >= 700
