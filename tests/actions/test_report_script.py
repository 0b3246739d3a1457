"""The action's script: what it reports about a job."""

import asyncio
import importlib.util
import json
import re
import sys

import pytest

from tests.actions.reported import ACTION, DISPATCH


async def test_the_start_of_a_job_is_reported_with_everything_the_runner_knows(service, job):
    code, output = await job.report(status="in_progress", job_name="build")

    assert (code, output) == (0, "ootbot took the report: accepted\n")
    (report,) = service.reports
    workflow = report.pop("workflow")
    assert report == {key: DISPATCH[key] for key in DISPATCH if key != "schema_version"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", workflow.pop("started_at"))
    assert workflow == {
        "schema_version": 1,
        "status": "in_progress",
        "name": "Device CI",
        "url": "https://github.example/org/npu/actions/runs/4455",
        "run_id": "4455",
        "run_attempt": 2,
        "job_name": "build",
    }
    assert service.tokens == [("ootbot", "Bearer request-secret")]
    assert service.authorizations == ["Bearer oidc-1"]


async def test_the_end_of_a_job_is_reported_with_all_inputs(service, job):
    code, _ = await job.report(
        status="completed",
        conclusion="failure",
        job_name="test (cuda)",
        workflow_name="Nightly",
        test_results='{"passed": 3, "failed": 1, "skipped": 0, "seconds": 9}',
        failed_tests='[{"name": "test_add", "file": "t.py", "line": 4, "message": "no", "x": 1}]',
        artifact_url="https://ci.example/4455.zip",
        environment='{"driver": "24.1", "cards": 8}',
        run_url="https://ci.example/4455",
        check_run_id="77",
        event_type="push",
        delivery_id="another",
        audience="bots",
    )

    assert code == 0
    assert service.reports[0]["event_type"] == "push"
    assert service.reports[0]["delivery_id"] == "another"
    assert service.workflow.pop("completed_at").endswith("Z")
    assert service.workflow == {
        "schema_version": 1,
        "status": "completed",
        "conclusion": "failure",
        "name": "Nightly",
        "url": "https://ci.example/4455",
        "run_id": "4455",
        "run_attempt": 2,
        "job_name": "test (cuda)",
        "check_run_id": "77",
        "test_results": {"passed": 3, "failed": 1, "skipped": 0},
        "failed_tests": [{"name": "test_add", "file": "t.py", "message": "no", "line": 4}],
        "artifact_url": "https://ci.example/4455.zip",
        "environment": {"driver": "24.1", "cards": "8"},
    }
    assert service.tokens == [("bots", "Bearer request-secret")]


async def test_a_workflow_started_by_workflow_dispatch_finds_its_dispatch_in_the_input(service, job):
    dispatch = {**DISPATCH, "callback_url": f"{service.url}/callback"}
    event = {"ref": "refs/heads/main", "inputs": {"client_payload": json.dumps(dispatch)}}
    (job.folder / "event.json").write_text(json.dumps(event))

    code, output = await job.report(status="in_progress", job_name="build")

    assert (code, output) == (0, "ootbot took the report: accepted\n")
    (report,) = service.reports
    assert report["delivery_id"] == DISPATCH["delivery_id"]
    assert report["callback_token"] == DISPATCH["callback_token"]
    assert report["payload"] == DISPATCH["payload"]


async def test_an_input_that_is_no_json_is_named(service, job):
    (job.folder / "event.json").write_text(json.dumps({"inputs": {"client_payload": "{broken"}}))

    code, output = await job.report(status="in_progress", job_name="build")

    assert code == 1
    assert "client_payload is not JSON" in output
    assert service.reports == []


async def test_a_job_that_reports_about_itself_names_itself_and_its_check_run(service, job):
    await job.report(status="in_progress")

    assert service.workflow["job_name"] == "report"
    assert service.workflow["check_run_id"] == "9001"


async def test_a_nightly_run_without_a_dispatch_reports_about_an_upstream_commit(service, job):
    (job.folder / "event.json").write_text('{"schedule": "0 3 * * *"}')

    code, _ = await job.report(
        status="completed",
        conclusion="success",
        event_type="nightly",
        delivery_id="a" * 40,
        url=f"{service.url}/callback",
    )

    assert code == 0
    assert service.reports[0]["delivery_id"] == "a" * 40
    assert "payload" not in service.reports[0]


@pytest.mark.parametrize("handed_over", ["file", "variable"])
async def test_another_ci_brings_its_own_token(service, job, handed_over):
    job.environment = {"PATH": job.environment["PATH"]}
    command = [sys.executable, str(ACTION / "report.py"), "--event", "event.json"]
    if handed_over == "file":
        (job.folder / "token").write_text("theirs\n")
        command += ["--token-file", "token"]
    else:
        job.environment["OOTBOT_TOKEN"] = "theirs"

    told = {"status": "in_progress", "workflow-name": "pipeline", "job-name": "a/b", "run-id": "8d-1"}
    code, output = await job.run(*command, *(f"--{key}={value}" for key, value in told.items()))

    assert (code, output) == (0, "ootbot took the report: accepted\n")
    assert service.authorizations == ["Bearer theirs"]
    assert service.workflow["run_id"] == "8d-1"
    assert service.workflow["run_attempt"] == 1


async def test_another_ci_is_told_what_is_missing(service, job):
    job.environment = {"PATH": job.environment["PATH"]}
    command = [sys.executable, str(ACTION / "report.py"), "--event=event.json", "--status=in_progress"]

    code, output = await job.run(*command)
    assert (code, output) == (1, "error: `workflow-name` is needed outside GitHub Actions\n")

    code, output = await job.run(*command, "--workflow-name=p", "--job-name=j", "--run-id=1")
    assert code == 1
    assert "--token-file or OOTBOT_TOKEN" in output


async def test_help_shows_how_to_use_it(job):
    code, output = await job.run(sys.executable, str(ACTION / "report.py"), "--help")

    assert code == 0
    assert "examples:" in output


async def test_a_token_older_than_four_minutes_is_not_used_again(service, job, monkeypatch):
    for name in ("ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"):
        monkeypatch.setenv(name, job.environment[name])
    spec = importlib.util.spec_from_file_location("report_sending", ACTION / "sending.py")
    sending = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "report_sending", sending)
    spec.loader.exec_module(sending)
    tokens = sending.Tokens("ootbot")

    async def current():
        return await asyncio.to_thread(tokens.current, 5)

    assert [await current(), await current()] == ["oidc-1", "oidc-1"]
    tokens.fetched -= 241
    assert await current() == "oidc-2"
