"""What one capability knows of another one's rows leaves with these: why a job failed, as a column of the job."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bot.ci.collect.settings import CollectSettings
from bot.core.feature import load
from bot.db.exports import decode_key
from bot.sinks.current_rows import read_current
from bot.sinks.lanes import lanes
from bot.sinks.settings import SinksSettings, parse_sinks
from tests import harness
from tests.harness import UPSTREAM

LOG = "2026-11-22T10:00:00.0000000Z FAILED test/test_ops.py::TestOps::test_add - AssertionError: 1 != 2\n"


@pytest.fixture
async def bot(settings, github, issuer, clock):
    table = {
        "kind": "clickhouse", "url": "http://127.0.0.1:1", "database_map": "upstream", "what": ["workflow_job"],
        "paused": True,
    }  # fmt: skip
    sinks = SinksSettings(sinks=parse_sinks(json.dumps({"ch": table})))
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
    (lane,) = lanes(bot.context.settings, bot.context.features)
    async with bot.store.read() as tx:
        current = await read_current(tx, bot.context, lane, [decode_key(mark["key"])])
    copy = load(lane.shape.make)(lane.export)
    ((row,),) = [list(copy.rows(one.row)) for one in current.items]
    assert row["torchci_classification"]["rule"] == "pytest failure"
    assert row["torchci_classification"]["job_id"] == job.id
    assert "test_add" in row["torchci_classification"]["line"]
    assert row["conclusion"] == "failure"
