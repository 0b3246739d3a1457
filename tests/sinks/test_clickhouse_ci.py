"""What CI left, in tables of ClickHouse: our own and upstream's, as saved queries of today ask for it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bot.jobs.settings import CollectSettings
from bot.sinks.settings import SinksSettings, parse_sinks
from tests import harness
from tests.evidence.tests.reported import case, ran, xml
from tests.evidence.usage.logs_of_usage import metadata, record, text
from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

pytest.importorskip("chdb")

from tests.sinks.clickhouse_tables import sink_of
from tests.sinks.test_clickhouse import ch, database, server  # noqa: F401 - fixtures

pytestmark = [SQLITE, pytest.mark.nightly]
HORIZON = 200  # seconds in which a run's artifacts are listed, fetched, merged and sent
CI = ["records", "tests", "utilization", "oot_workflow_job"]


@pytest.fixture
async def bot(settings, server, database, github, issuer, clock):  # noqa: F811
    _, port = server
    tables = {
        "ours": sink_of(port, database, what=[*CI, "verdicts", "logs", "artifacts", "trunk"]),
        "upstream": sink_of(port, database_map="upstream", what=CI),
    }
    sinks = SinksSettings(sinks=parse_sinks(json.dumps(tables)))
    of_features = {CollectSettings: CollectSettings(), SinksSettings: sinks}
    async with harness.running(
        replace(settings, of_features=of_features), github=github, issuer=issuer, app=github.app, clock=clock,
        begun=True,
    ) as made:  # fmt: skip
        await made.context.github.tokens.get(UPSTREAM, {"actions": "read"})
        clock.advance(10)
        yield made
        assert [row for row in await made.rows("sink_state") if row["stopped"] or row["error"]] == []
        assert await made.rows("sink_refused") == []


async def test_test_results_are_rows_of_suites_failures_and_cases(bot, github, ch, database):  # noqa: F811
    report = xml(
        case("test_add"), case("test_mul", "failed", message="3 != 4"), case("test_div", "flaky"),
        case("test_new", "skipped"),
    )  # fmt: skip
    run, job = await ran(github, {"a.xml": report})
    await bot.settle(horizon=HORIZON)
    (suite,) = await ch.rows(f"SELECT * FROM {database}.v_test_summary")
    assert (suite["suite"], suite["tests"], suite["failures"], suite["job_id"]) == ("TestOps", 4, 1, job.id)
    failures = await ch.rows(f"SELECT name, outcome, flaky FROM {database}.v_test_failure ORDER BY name")
    assert [(one["name"], one["outcome"], one["flaky"]) for one in failures] == [
        ("test_div", "passed", True), ("test_mul", "failed", False),
    ]  # fmt: skip
    cases = await ch.rows(f"SELECT name, outcome FROM {database}.v_test_case ORDER BY name")
    assert {one["name"]: one["outcome"] for one in cases} == {
        "test_add": "passed", "test_div": "passed", "test_mul": "failed", "test_new": "skipped",
    }  # fmt: skip
    (jobs,) = await ch.rows(f"SELECT tests, failed, accelerator, base_name FROM {database}.v_test_job")
    assert (jobs["tests"], jobs["failed"], jobs["accelerator"]) == (4, 1, "cuda")
    (theirs,) = await ch.rows(
        "SELECT failure, rerun, result, `system-out` AS printed, workflow_id FROM default.failed_test_runs FINAL"
        f" WHERE name = 'test_mul' AND workflow_id = {run.id}"
    )
    assert theirs["failure"][0]["message"] == "3 != 4"
    (counted,) = await ch.rows(
        f"SELECT count() AS n FROM default.test_run_s3 FINAL WHERE workflow_id = {run.id}"
    )
    assert counted["n"] == 4


async def test_a_machine_is_a_row_and_its_records_are_there_once(bot, github, ch, database):  # noqa: F811
    run = await github.start_run(UPSTREAM, event="pull_request", head_branch="topic")
    job = await github.start_job(run, "build / test (default, 1, 2, npu.8)", ("npu.8",))
    records = [
        record(at, cpu=50.0, memory=40.0, gpus=[("A", 2.5)], commands=["python a.py"]) for at in (0, 5)
    ]
    name = f"usage-log-runattempt1-test-default-1-2-npu.8_{job.id}.zip"
    github.add_artifact(run, name, {"usage_log.txt": text(metadata(), *records).encode()})
    await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await bot.settle(horizon=HORIZON)
    for _ in range(2):  # once more: the table of upstream replaces nothing by itself
        (row,) = await ch.rows(f"SELECT * FROM misc.oss_ci_utilization_metadata WHERE job_id = {job.id}")
        points = await ch.rows(
            f"SELECT time_stamp, json_data FROM misc.oss_ci_time_series WHERE job_id = {job.id}"
        )
        assert len(points) == 2
        async with bot.store.transaction() as tx:
            tx.note_changed("utilization_job", await bot.rows("utilization_job"))
        await bot.settle(horizon=HORIZON)
    assert row["repo"] == UPSTREAM
    assert json.loads(points[0]["json_data"])
    (mine,) = await ch.rows(
        f"SELECT cpu_avg, idle_gpu_s FROM {database}.v_utilization_job WHERE job_id = {job.id}"
    )
    assert mine["cpu_avg"] == 50.0
    assert len(await ch.rows(f"SELECT at FROM {database}.v_utilization_point WHERE job_id = {job.id}")) == 2


async def test_the_relays_dashboards_find_their_columns(bot, github, ch):  # noqa: F811
    await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L4)
    await bot.report(dispatch, status="in_progress", check_run_id=77)
    bot.clock.advance(60)
    await bot.report(dispatch, conclusion="failure", check_run_id=77, test_results={"passed": 5, "failed": 1})
    await bot.settle(horizon=10)
    rows = await ch.rows(
        f"SELECT * FROM default.crcr_workflow_job FINAL WHERE delivery_id = '{dispatch.client_payload['delivery_id']}'"
    )
    (row,) = rows
    assert (row["status"], row["conclusion"], row["downstream_repo_level"]) == ("completed", "failure", "L4")
    assert row["total_tests"] == 6
