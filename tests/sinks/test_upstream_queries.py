"""Queries of upstream's dashboards on what we write: ours that ask for the same, and theirs, unmodified, where they are.

With `OOTBOT_TEST_INFRA` naming a checkout of pytorch/test-infra, its statements for tables and its saved queries of
what we write are run as they are; without, tables are made by `ootbot sink ddl`, and only our own queries are run.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bot.jobs.settings import CollectSettings
from bot.sinks.settings import SinksSettings, parse_sinks
from tests import harness
from tests.command import ootbot
from tests.evidence.tests.reported import JOB, case, ran, xml
from tests.evidence.usage.logs_of_usage import metadata, record, text
from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

pytest.importorskip("chdb")

from tests.sinks import clickhouse_gateway
from tests.sinks.clickhouse_tables import Tables, sink_of
from tests.sinks.test_sink_command import sink  # noqa: F401 - a fixture

pytestmark = [SQLITE, pytest.mark.nightly]
THEIRS = Path(os.environ.get("OOTBOT_TEST_INFRA") or "/nowhere")
HORIZON = 400  # seconds in which everything is fetched, counted and sent
WHAT = [
    "records", "tests", "all_test_runs", "test_hub", "utilization", "oot_workflow_job", "queue_times",
    "disabled_tests_historical", "ossci_uploaded_metrics",
]  # fmt: skip
LOG = "2026-11-22T10:00:00.0000000Z FAILED test_ops.py::TestOps::test_mul - AssertionError: 3 != 4\n"
# a disabled test that was run over and over, and always passed
RERUN = (
    "<testcase file='test_ops.py' classname='TestOps' name='test_mul' time='1'><skipped message='"
    '{"num_green": 50, "num_red": 0, "rerun_disabled_test": true}'
    "'/></testcase>"
)
SCHEMA_FOLDERS = (
    "default.workflow_job", "default.workflow_run", "default.crcr_workflow_job", "misc.disabled_tests_historical",
    "oss_ci_queue_time_histogram",
)  # fmt: skip
OF_MACHINES = ("oss_ci_utilization_metadata_schema", "oss_ci_time_series_schema")
CHOSEN = (  # beside all that begin with crcr_
    "commit_jobs_query", "commit_failed_jobs", "disabled_test_historical", "disabled_tests", "queue_time_analysis/queue_time_query",
    "flaky_tests", "flaky_tests/disabled_non_flaky_tests", "flaky_tests/ind_info", "test_time_per_file",
)  # fmt: skip
PARAMETER = re.compile(r"\{\s*(\w+)\s*:")
# ours, each of what some of theirs ask for: it has to find something
OURS = {
    "backends by day": """
        SELECT toDate(started_at) AS day, repository_full_name, countIf(conclusion = 'failure') AS failures,
               avg(duration_seconds) AS seconds, avg(queue_time), avg(execution_time), max(triage_verdict_json)
        FROM default.crcr_workflow_job FINAL WHERE started_at > now() - INTERVAL 2 DAY AND pr_number > 0
        GROUP BY day, repository_full_name HAVING failures = 1""",
    "newest attempt of each job": """
        SELECT job_name, row_number() OVER (PARTITION BY run_id, job_name ORDER BY run_attempt DESC) AS newest
        FROM default.crcr_workflow_job FINAL WHERE downstream_repo_level = 'L4' AND total_tests = 6""",
    "nightly runs": """
        SELECT run_id, argMax(pytorch_head_sha, started_at), uniqExact(run_id) FROM default.crcr_workflow_job FINAL
        WHERE event_type = 'nightly' AND status = 'completed' GROUP BY run_id""",
    "why jobs of a commit failed": """
        SELECT j.name, w.name, j.torchci_classification_kg.'line' AS line, j.torchci_classification.rule AS rule,
               j.conclusion_kg, j.log_url, j.repository_full_name, w.artifacts_url, w.head_commit.author.email
        FROM default.workflow_job AS j FINAL INNER JOIN default.workflow_run AS w FINAL ON w.id = j.run_id
        WHERE w.repository.full_name = {repo: String} AND rule = 'pytest failure'
          AND j.id IN (SELECT id FROM materialized_views.workflow_job_by_head_sha WHERE head_sha = {sha: String})
          AND w.id IN (SELECT id FROM materialized_views.workflow_run_by_created_at WHERE created_at > 0)""",
    "failed tests with their jobs": """
        SELECT t.name, j.html_url, t.failure[1].'message' AS said FROM default.failed_test_runs AS t FINAL
        INNER JOIN default.workflow_job AS j FINAL ON j.id = t.job_id
        WHERE t.time_inserted > now() - INTERVAL 1 DAY AND said = '3 != 4'""",
    "flaky tests": """
        SELECT name, count() AS green, sum(length(rerun)) AS red FROM default.test_run_s3 FINAL
        WHERE length(rerun) != 0 GROUP BY name HAVING red > 0""",
    "time of files": """
        SELECT invoking_file, sum(time) AS seconds FROM default.test_run_summary FINAL
        WHERE file != '' GROUP BY invoking_file HAVING seconds > 0""",
    "status of each test of a run": """
        SELECT name, multiIf(sum(failure_count + error_count) > 0, 'failure', sum(rerun_count) > 0, 'flaky',
                             sum(skipped_count) > 0, 'skipped', 'success') AS status
        FROM tests.all_test_runs FINAL GROUP BY name HAVING status = 'flaky'""",
    "attempts by outcome": """
        SELECT t.case_name, e.accelerator, r.outcome, count() FROM tests.runs AS r FINAL
        INNER JOIN tests.tests AS t FINAL ON t.id = r.test_id
        INNER JOIN tests.environments AS e FINAL ON e.id = r.env_id
        INNER JOIN tests.flags AS f FINAL ON f.id = r.flags_id
        WHERE r.outcome = 'failed' AND r.started_at > now() - INTERVAL 1 DAY GROUP BY ALL""",
    "disabled tests by day": """
        SELECT d.day, d.name, i.labels.name, i.assignee.'login' FROM misc.disabled_tests_historical AS d FINAL
        INNER JOIN default.issues AS i FINAL ON i.number = d.issueNumber
        WHERE has(d.platforms, 'linux') AND d.timestamp > now() - INTERVAL 1 DAY""",
    "waits for runners": """
        SELECT machine_type, sum(total_count) AS jobs, sumForEach(histogram) AS steps, max(max_queue_time) AS longest
        FROM misc.oss_ci_queue_time_histogram WHERE repo = {repo: String} GROUP BY machine_type
        HAVING length(steps) = 90 AND arraySum(steps) = jobs AND longest > 0""",
    "machines": """
        SELECT workflow_id, job_id, workflow_name, gpu_type, segments.name, start_at, end_at
        FROM misc.oss_ci_utilization_metadata WHERE repo = {repo: String} AND end_at > start_at""",
    "use of machines": """
        SELECT repo, workflow_name, quantile(0.9)(JSONExtractFloat(json_data, 'cpu', 'max')) AS cpu,
               max(arrayMax(arrayMap(x -> JSONExtractFloat(x, 'util_percent', 'max'),
                                     JSONExtractArrayRaw(json_data, 'gpu_usage')))) AS gpu
        FROM misc.oss_ci_time_series WHERE type = 'utilization' GROUP BY repo, workflow_name HAVING cpu > 0 AND gpu > 0""",
    "jobs that wait": """
        SELECT name, dateDiff('second', created_at, now()) AS waited, labels FROM default.workflow_job FINAL
        WHERE status = 'queued' AND length(steps) = 0""",
}


@pytest.fixture(scope="module", params=["ours", "theirs"])
def kind(request):
    if request.param == "theirs" and not THEIRS.is_dir():
        pytest.skip("OOTBOT_TEST_INFRA names no checkout of pytorch/test-infra")
    return request.param


@pytest.fixture(scope="module")
def server(kind, tmp_path_factory):
    folder = tmp_path_factory.mktemp(kind)
    with clickhouse_gateway.serving(folder) as port:
        yield folder, port


@pytest.fixture
async def ch(server):
    found = Tables(*server)
    yield found
    await found.close()


@pytest.fixture
def tables(server):
    return {"upstream": sink_of(server[1], database_map="upstream", what=WHAT)}


@pytest.fixture
async def bot(settings, tables, github, issuer, clock):
    clock.at = round(time.time() * 1000) - 12 * 3_600_000  # queries ask for the last days
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


async def test_queries_of_upstreams_dashboards_answer(kind, server, bot, github, ch, sink):  # noqa: F811
    if kind == "theirs":
        await ch.change("CREATE DATABASE misc", "CREATE DATABASE tests", *statements())
        hub = Tables(*server, "tests")
        await hub.change(*hub_statements())
        await hub.close()
    code, ddl, err = await ootbot(bot, "sink", "ddl", "upstream")  # not by `sink`, which would let hours pass
    assert code == 0, err
    await ch.change(*(one for one in ddl.split(";\n") if one.strip()))
    parameters = await play(bot, github)
    code, out, err = await sink("check", "upstream")
    assert code == 0, out + err
    for name, sql in OURS.items():
        assert await answer(ch, sql, parameters), name
    if THEIRS.is_dir():
        found = {name: await answer(ch, sql, named(name, parameters)) for name, sql in saved_queries()}
        # two are about one repository of theirs, one asks for changes of a level
        nothing = {"crcr_health_last_prs", "crcr_health_pr_job_details", "crcr_level_history"}
        assert {name for name, rows in found.items() if not rows} == nothing & found.keys()


async def play(bot, github):
    """Have everything happen that the queries are about; returns their parameters."""
    await github.open_issue(UPSTREAM, "DISABLED test_mul (__main__.TestOps)", "platforms: linux")
    report = xml(case("test_add"), case("test_mul", "failed", message="3 != 4"), case("test_div", "flaky"))
    stable = await github.push(UPSTREAM, "viable/strict")
    run = await github.start_run(UPSTREAM, event="push", head_sha=stable)
    job = await github.queue_job(run, JOB, ("linux.2xlarge",))
    bot.clock.advance(90)
    await github.begin_job(job)
    github.add_artifact(run, f"test-reports-test-default-1-2-linux.large_{job.id}", {"a.xml": report})
    await github.finish_job(job, "failure", log=LOG)
    await github.finish_run(run, "failure")
    usage = [record(at, cpu=50.0, memory=40.0, gpus=[("A", 2.5)], commands=["python a.py"]) for at in (0, 5)]
    used = await github.start_run(UPSTREAM, event="push")
    machine = await github.start_job(used, "build / test (default, 1, 2, npu.8)", ("npu.8",))
    name = f"usage-log-runattempt1-test-default-1-2-npu.8_{machine.id}.zip"
    github.add_artifact(used, name, {"usage_log.txt": text(metadata(), *usage).encode()})
    await github.finish_job(machine, "success")
    await github.finish_run(used, "success")
    name = "linux-jammy / test (default, 1, 2, linux.large, rerun_disabled_tests)"
    await ran(github, {"b.xml": xml(RERUN)}, name=name)
    waiting = await github.start_run(UPSTREAM, event="push")
    await github.queue_job(waiting, "build")
    pull = await github.open_pull(UPSTREAM)
    await bot.settle(horizon=5)
    dispatch = bot.dispatch(L4)
    await bot.report(dispatch, status="in_progress", check_run_id=77)
    bot.clock.advance(60)
    await bot.report(dispatch, conclusion="failure", check_run_id=77, test_results={"passed": 5, "failed": 1})
    await report_nightly(bot, run.head_sha)
    await bot.settle(horizon=HORIZON)
    await bot.wait(2 * 1800)
    await bot.settle(horizon=HORIZON)
    return {
        "repo": UPSTREAM, "sha": run.head_sha, "shas": [run.head_sha], "pr": pull.number, "prNums": [pull.number],
        "days": 14, "per_page": 100, "offset": 0, "limit": 20, "window_minutes": 600, "stale_after_minutes": 60,
        "workflowId": run.id, "runAttempt": 1, "searchString": "", "granularity": "day", "jobNames": [],
        "repos": [UPSTREAM], "workflowNames": [], "machineTypes": [], "runnerLabels": [], "numHours": 48,
        "branch": "%", "name": "%", "suite": "%", "file": "%", "platform": "", "label": "", "triaged": "", "state": "",
        "min_num_green": 0, "max_num_red": 100, "startTime": "2020-01-01 00:00:00", "stopTime": "2099-01-01 00:00:00",
        "endTime": "2099-01-01 00:00:00",
    }  # fmt: skip


def named(name, parameters):
    """The parameters of one of their queries."""
    if name.startswith("crcr_"):
        return parameters | {"repo": L4}
    if name.endswith("ind_info"):
        return parameters | {"name": "test_mul", "suite": "TestOps", "file": "test_ops.py"}
    return parameters


async def report_nightly(bot, commit):
    body = {
        "event_type": "nightly",
        "delivery_id": commit,
        "workflow": {
            "schema_version": "1.0", "status": "completed", "conclusion": "success", "name": "Nightly",
            "url": "https://ci.example/1", "run_id": "7", "run_attempt": 1, "job_name": "all",
        },
    }  # fmt: skip
    token = bot.issuer.mint(repository=L4, run_id="7", run_attempt=1)
    headers = {"Authorization": f"Bearer {token}"}
    status, told = await bot.request("POST", "/api/oot/callback", json=body, headers=headers)
    assert status == 200, told


async def answer(ch, sql, parameters):
    wanted = {name: parameters[name] for name in PARAMETER.findall(sql)}
    return await ch.rows(sql, wanted)


def statements():
    """Their statements for tables, for a server of one machine, without columns that look up dictionaries."""
    schemas = THEIRS / "clickhouse_db_schema"
    files = [schemas / folder / "schema.sql" for folder in SCHEMA_FOLDERS]
    files += [schemas / "oss_ci_utilization" / f"{name}.sql" for name in OF_MACHINES]
    found = []
    for path in files:
        lines = [line for line in path.read_text().splitlines() if "dictGet(" not in line]
        found.append(re.sub(r"(?:Shared)?(\w*MergeTree)\('[^']*', '[^']*'\)", r"\1", "\n".join(lines)))
    return found


def hub_statements():
    """Their statements for the tables of the test hub, which they try out."""
    text = (THEIRS / "clickhouse_db_schema" / "fortesting" / "000001-create-tables.sql").read_text()
    plain = "\n".join(line.partition("--")[0].rstrip() for line in text.splitlines())
    return [one for one in plain.split(";\n") if one.strip()]


def saved_queries():
    """Their saved queries, by name, as they are."""
    folder = THEIRS / "torchci" / "clickhouse_queries"
    names = sorted(path.name for path in folder.glob("crcr_*"))
    assert len(names) >= 9
    found = [(name, folder / name / "query.sql") for name in (*names, *CHOSEN)]
    return [(name, path.read_text()) for name, path in found if path.is_file()]
