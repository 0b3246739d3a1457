"""Pausing, stopping, filling and letting go: what the operator decides, and what is kept for sinks until then."""

from __future__ import annotations

import json

import pytest

from bot.ingest import retention
from bot.sinks import changes, queue_rows
from bot.sinks.backfill import backfill_queue
from bot.sinks.queues import export_queues
from tests.harness import UPSTREAM
from tests.serving import SQLITE
from tests.sinks.stored import files
from tests.sinks.test_archive import delivered

DAY = 86_400  # seconds
BEGUN = "2026-09-01"  # before the test's clock


async def held(bot, act):
    async with bot.store.transaction() as tx:
        for queue in export_queues(bot.context.settings, bot.context.features):
            await queue_rows.add_new_states(tx, [queue])
            await act(tx, queue.sink.name, queue.what)
            tx.enqueue("sink", queue.task_key)
    await bot.settle()


@pytest.mark.logic
async def test_what_is_paused_waits_and_is_sent_once_resumed(bot, github, folder):
    await held(bot, queue_rows.pause_queue)
    bodies = await delivered(bot, github)
    assert files(folder / "archive") == {}
    await held(bot, queue_rows.resume_queue)
    archived = [key for key in files(folder / "archive") if key.endswith(".json.gz")]
    assert len(archived) == len(bodies)


async def test_marks_of_one_row_merge(bot, github):
    await held(bot, queue_rows.pause_queue)
    run = await github.start_run(UPSTREAM, event="pull_request")
    job = await github.start_job(run, "build")
    await bot.settle()
    await github.finish_job(job, "success")
    await bot.settle()
    key = json.dumps([1_000_003, job.id], separators=(",", ":"))
    (mark,) = [row for row in await bot.rows("sink_mark") if row["what"] == "workflow_job"]
    assert (mark["key"], mark["generation"] > 1) == (key, True)


async def test_a_mark_that_is_raised_while_its_row_is_sent_stays(bot, github, clock):
    async with bot.store.transaction() as tx:
        await changes.note_changes(
            tx, [("copies", "workflow_job", "[1,2]"), ("copies", "workflow_job", "[1,3]")]
        )
    async with bot.store.read() as tx:
        taken = await changes.take_oldest_changes(tx, "copies", "workflow_job", most=10)
    clock.advance(1)
    async with bot.store.transaction() as tx:
        await changes.note_changes(tx, [("copies", "workflow_job", "[1,3]")])
    async with bot.store.transaction() as tx:
        await changes.remove_sent_changes(tx, "copies", "workflow_job", taken)
        assert [
            mark["key"] for mark in await changes.take_oldest_changes(tx, "copies", "workflow_job", most=10)
        ] == ["[1,3]"]


SINCE = {
    "copies": {
        "kind": "objects",
        "url": "FOLDER/copies",
        "layout": "upstream",
        "what": ["workflow_job"],
        "since": BEGUN,
    }
}


@pytest.mark.parametrize("tables", [SINCE], indirect=True, ids=["since"])
async def test_a_new_sink_gets_what_there_was_before(bot, github, folder):
    await delivered(bot, github)
    async with bot.store.transaction() as tx:  # as if the sink were new
        for row in await bot.rows("sink_state"):
            await queue_rows.remove_state(tx, row["sink"], row["what"])
    for path in (folder / "copies").rglob("*"):
        if path.is_file():
            path.unlink()
    async with bot.store.transaction() as tx:
        tx.enqueue("sinks", "")
    await bot.settle(horizon=15)
    (job,) = await bot.rows("workflow_job")
    assert list(files(folder / "copies")) == [f"workflow_job/{UPSTREAM}/{job['id']}"]
    (state,) = await bot.rows("sink_state")
    assert (state["filled"], state["filled_from"]) == (1, None)


@pytest.mark.logic
async def test_filling_goes_on_where_it_stopped(bot, github, monkeypatch):
    monkeypatch.setattr("bot.sinks.backfill.KEYS_AT_ONCE", 2)
    await held(bot, queue_rows.pause_queue)
    run = await github.start_run(UPSTREAM, event="pull_request")
    for number in range(5):
        await github.finish_job(await github.start_job(run, f"job {number}"), "success")
    await bot.settle()
    (queue,) = [
        one for one in export_queues(bot.context.settings, bot.context.features) if one.what == "workflow_job"
    ]
    async with bot.store.transaction() as tx:
        await changes.remove_changes(tx, "copies", "workflow_job")
        await queue_rows.begin_backfill(tx, "copies", "workflow_job", 0)
    reported = []
    with pytest.raises(InterruptedError):
        await backfill_queue(bot.store, queue, lambda count: reported.append(count) or interrupt(reported))
    assert await backfill_queue(bot.store, queue) == 3
    waiting = [row for row in await bot.rows("sink_mark") if row["what"] == "workflow_job"]
    assert len(waiting) == 5


def interrupt(reported):
    if len(reported) == 1:
        raise InterruptedError


async def test_deliveries_are_kept_until_the_sink_has_them_then_a_week_and_it_is_said(bot, github, folder):
    await held(bot, queue_rows.pause_queue)
    bodies = await delivered(bot, github)
    keep = bot.context.settings.raw_retention_days
    bot.clock.advance((keep + 1) * DAY)
    await retention.prune_expired(bot.context, None)
    assert {row["guid"] for row in await bot.rows("delivery")} == set(bodies)
    bot.clock.advance(7 * DAY)
    await retention.prune_expired(bot.context, None)
    await retention.prune_expired(bot.context, None)
    assert {row["event"] for row in await bot.rows("delivery")} <= {"pull_request"}, (
        "one that was dispatched is kept"
    )
    refused = {
        json.loads(row["key"])[0] for row in await bot.rows("sink_refused") if row["sink"] == "archive"
    }
    assert refused == set(bodies)
    assert files(folder / "archive") == {}


@SQLITE
async def test_deliveries_that_the_sink_has_are_deleted_as_all(bot, github):
    await delivered(bot, github)
    bot.clock.advance((bot.context.settings.raw_retention_days + 1) * DAY)
    await retention.prune_expired(bot.context, None)
    assert {row["event"] for row in await bot.rows("delivery")} <= {"pull_request"}
    assert await bot.rows("sink_refused") == []


@SQLITE
async def test_what_was_marked_for_a_sink_that_is_gone_is_forgotten(bot):
    async with bot.store.transaction() as tx:
        await changes.note_changes(tx, [("former", "deliveries", '["a"]')])
        tx.enqueue("sinks", "")
    await bot.settle()
    assert await bot.rows("sink_mark") == []
