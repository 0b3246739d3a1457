"""Records as items of DynamoDB: GitHub's objects under upstream's keys, and what is said where a table is missing."""

from __future__ import annotations

import pytest

from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE
from tests.sinks.dynamo_tables import items

pytestmark = [SQLITE, pytest.mark.logic]


@pytest.fixture
def tables(dynamo_sink):
    return dynamo_sink


async def ran(bot, github):
    run = await github.start_run(UPSTREAM, event="push")
    job = await github.start_job(run, "build")
    await github.finish_job(job, "failure")
    await bot.settle(horizon=10)
    return job


async def test_records_are_items_under_upstreams_keys(bot, github, aws, prefix):
    pull = await github.open_pull(UPSTREAM)
    job = await ran(bot, github)
    found = items(aws, f"{prefix}workflow-job")[f"{UPSTREAM}/{job.id}"]
    assert (found["id"], found["conclusion"], found["name"]) == (
        {"N": str(job.id)},
        {"S": "failure"},
        {"S": "build"},
    )
    assert found["run_url"]["S"].endswith(f"/actions/runs/{job.run.id}"), "GitHub's whole object"
    assert found["labels"]["L"] is not None
    assert list(items(aws, f"{prefix}pull-request")) == [f"{UPSTREAM}/{pull.number}"]
    assert list(items(aws, f"{prefix}workflow-run")) == [f"{UPSTREAM}/{job.run.id}"]


async def test_a_backends_jobs_have_the_columns_of_todays_relay(bot, github, aws, prefix):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L4)
    status, answer = await bot.report(dispatch, check_run_id=77)
    assert status in {200, 201, 202}, answer
    await bot.settle(horizon=10)
    assert await bot.rows("sink_refused") == []
    ((key, found),) = items(aws, f"{prefix}oot-workflow-job").items()
    assert key.startswith(f"{L4}/")
    assert key.endswith("/77")
    assert found["status"] == {"S": "completed"}
    assert "queue_time" not in found, "what is not known is left out"


@pytest.mark.parametrize("dynamo_sink", [{"create_tables": False, "what": ["workflow_job"]}], indirect=True)
async def test_a_missing_table_is_named_with_what_makes_it(bot, github, aws, prefix):
    await ran(bot, github)
    (state,) = [row for row in await bot.rows("sink_state") if row["what"] == "workflow_job"]
    assert state["stopped"].startswith(
        f"there is no table {prefix}workflow-job: make it with `aws dynamodb create-table"
    )
    assert len(await bot.rows("sink_mark")) == 1
