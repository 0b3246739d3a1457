"""What leaves with a row, and what does not: columns of other capabilities, and machines of an organization."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bot.core.feature import load
from bot.db.exports import decode_key
from bot.jobs.settings import CollectSettings
from bot.providers.tables import store_agent
from bot.sinks.current_rows import read_current
from bot.sinks.queues import export_queues
from bot.sinks.settings import SinksSettings, parse_sinks
from tests import harness
from tests.harness import UPSTREAM

LOG = "2026-11-22T10:00:00.0000000Z FAILED test/test_ops.py::TestOps::test_add - AssertionError: 1 != 2\n"


THERE = {"kind": "clickhouse", "url": "http://127.0.0.1:1", "paused": True}
JOBS = {"upstream": THERE | {"database_map": "upstream", "what": ["workflow_job"]}}
AGENTS = {"public": THERE | {"what": ["providers"]}, "all": THERE | {"what": ["providers"], "private": True}}


@pytest.fixture
async def bot(request, settings, github, issuer, clock):
    sinks = SinksSettings(sinks=parse_sinks(json.dumps(getattr(request, "param", JOBS))))
    of_features = {CollectSettings: CollectSettings(), SinksSettings: sinks}
    async with harness.running(
        replace(settings, of_features=of_features), github=github, issuer=issuer, app=github.app, clock=clock,
        begun=True,
    ) as made:  # fmt: skip
        await made.context.github.tokens.get(UPSTREAM, {"actions": "read"})
        clock.advance(10)
        yield made


@pytest.mark.logic
async def test_a_verdict_marks_its_job_and_is_a_column_of_it(bot, github):
    run = await github.start_run(UPSTREAM, event="pull_request")
    job = await github.start_job(run, "build")
    await github.finish_job(job, "failure", log=LOG)
    await bot.settle(horizon=100)
    (mark,) = await bot.rows("sink_mark")
    (stored,) = await bot.rows("workflow_job")
    assert decode_key(mark["key"]) == (stored["repository_id"], job.id)
    assert mark["generation"] > 1, "raised by the job and by its verdict"
    (queue,) = export_queues(bot.context.settings, bot.context.features)
    async with bot.store.read() as tx:
        current = await read_current(tx, bot.context, queue, [decode_key(mark["key"])])
    copy = load(queue.shape.make)(queue.export)
    ((row,),) = [list(copy.rows(one.row)) for one in current.items]
    assert row["torchci_classification"]["rule"] == "pytest failure"
    assert row["torchci_classification"]["job_id"] == job.id
    assert "test_add" in row["torchci_classification"]["line"]
    assert row["conclusion"] == "failure"


@pytest.mark.logic
@pytest.mark.parametrize("bot", [AGENTS], indirect=True)
async def test_machines_of_an_organization_leave_only_where_private_rows_do(bot):
    agent = {
        "organization": "o", "agent_id": "018f", "name": "npu-1", "queue": "npu", "tags": [], "state": "connected",
        "at": bot.clock.now(), "version": "1",
    }  # fmt: skip
    async with bot.store.transaction() as tx:
        await store_agent(tx, agent)
    marks = {mark["sink"]: decode_key(mark["key"]) for mark in await bot.rows("sink_mark")}
    assert marks == {"public": ("o", "018f"), "all": ("o", "018f")}
    sent = {}
    for queue in export_queues(bot.context.settings, bot.context.features):
        if queue.what == "provider_agent":
            async with bot.store.read() as tx:
                current = await read_current(tx, bot.context, queue, [("o", "018f")])
            sent[queue.sink.name] = [one.row["name"] for one in current.items]
    assert sent == {"public": [], "all": ["npu-1"]}
