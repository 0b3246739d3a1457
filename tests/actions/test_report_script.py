"""The action's script: what it reports about a job and its failed tests, dry runs, and its README."""

import asyncio
import importlib.util
import json
import re
import subprocess
import sys

import pytest
import yaml

from bot.core import files
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


async def test_a_good_report_is_shown_and_not_sent(service, job):
    code, output = await job.report(
        status="completed", conclusion="success", job_name="build", dry_run="true",
        test_results='{"passed": 3, "failed": 0, "skipped": 1}',
    )  # fmt: skip

    assert code == 0
    assert (service.reports, service.tokens) == ([], [])
    assert '"conclusion": "success"' in output
    assert '"passed": 3' in output
    assert f"note: to {service.url}/callback" in output
    assert "note: with a token from the runner, for the audience ootbot" in output
    assert "nothing was sent: nothing is wrong" in output
    assert DISPATCH["callback_token"] not in output
    assert "Add a kernel" not in output


async def test_everything_that_is_wrong_is_said_at_once(service, job):
    del job.environment["ACTIONS_ID_TOKEN_REQUEST_URL"]
    code, output = await job.report(
        status="completed", conclusion="success", dry_run="true", url="http://bot.example/api/oot/callback",
        test_results="junit:nothing/*.xml", environment="[]", test_reports="none/*.xml", usage_log="none.txt",
    )  # fmt: skip

    assert code == 1
    assert service.reports == []
    for wrong in (
        "wrong: `test-results` are left out",
        "wrong: `environment` is left out",
        "wrong: cannot report to 'http://bot.example/api/oot/callback'",
        "wrong: this job cannot ask for an OpenID token",
        "wrong: no test report was uploaded",
        "wrong: no usage log was uploaded",
        "nothing was sent: 6 wrong",
    ):
        assert wrong in output


async def test_a_missing_input_is_named(service, job):
    code, output = await job.report(status="done", dry_run="true", fail_on_error="false")
    assert (code, service.reports) == (1, [])
    assert "wrong: `status` must be one of in_progress, completed, not 'done'" in output


async def test_a_nightly_report_has_to_be_about_a_commit_that_is_done(service, job):
    job.event({"callback_url": f"{service.url}/callback"})
    code, output = await job.report(
        status="in_progress", event_type="nightly", delivery_id="main", dry_run="true"
    )
    assert code == 1
    assert "wrong: `delivery-id` must be the whole id of an upstream commit" in output
    assert "wrong: `status` must be completed" in output


def test_on_ones_own_machine_a_missing_token_is_only_a_note(tmp_path):
    command = [sys.executable, str(files.report_script()), "--dry-run", "--status", "completed"]
    options = {
        "conclusion": "failure", "workflow-name": "CI", "job-name": "build", "run-id": "1",
        "delivery-id": "0" * 40, "event-type": "nightly", "url": "https://bot.example/api/oot/callback",
    }  # fmt: skip
    more = [word for name, value in options.items() for word in (f"--{name}", value)]
    done = subprocess.run(
        [*command, *more], cwd=tmp_path, env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note: outside GitHub Actions, give the CI's OpenID token" in done.stdout


JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="s">
  <testcase name="test_adds" classname="ops" time="0.1"/>
  <testcase name="test_logs" classname="ops"><system-out>&lt;failure/&gt;</system-out></testcase>
  <testcase name="test_breaks" classname="ops" file="ops.py" line="12">
    <failure message="1 != 2">Traceback: é &amp; co</failure><error message="later"/>
  </testcase>
  <testsuite><testcase name="test_crashes"><error message="segfault"/></testcase></testsuite>
  <testcase name="test_waits"><skipped message="no card"/></testcase>
</testsuite></testsuites>
"""


async def test_junit_files_are_counted_and_their_failures_told(service, job):
    (job.folder / "out" / "a").mkdir(parents=True)
    (job.folder / "out" / "a" / "one.xml").write_text(JUNIT)
    (job.folder / "out" / "two.xml").write_text('<testsuite><testcase name="t"/></testsuite>')

    code, _ = await job.report(status="completed", conclusion="failure", test_results="junit:out/**/*.xml")

    assert code == 0
    assert service.workflow["test_results"] == {"passed": 3, "failed": 2, "skipped": 1}
    assert service.workflow["failed_tests"] == [
        {
            "name": "test_breaks",
            "classname": "ops",
            "file": "ops.py",
            "line": 12,
            "message": "1 != 2",
            "stacktrace": "Traceback: é & co",
        },
        {"name": "test_crashes", "message": "segfault"},
    ]


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><testsuite>&b;</testsuite>'


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ("junit:bomb.xml", "DOCTYPE"),
        ("junit:half.xml", "half.xml"),
        ("junit:*.xml", "not a readable JUnit file"),
        ("junit:none/*.xml", "no JUnit file matches"),
        ('{"passed": -1}', "passed is not a count"),
        ("[1]", "not a JSON object"),
        ("about 20", "neither JSON nor junit:PATH"),
    ],
)
async def test_results_that_cannot_be_read_do_not_keep_the_conclusion_back(service, job, results, reason):
    (job.folder / "bomb.xml").write_text(BOMB)
    (job.folder / "good.xml").write_text(JUNIT)
    (job.folder / "half.xml").write_text(JUNIT[:300])

    code, output = await job.report(status="completed", conclusion="failure", test_results=results)

    assert code == 0
    assert output.startswith("::warning title=ootbot report::`test-results` are left out: ")
    assert reason in output
    assert service.workflow["conclusion"] == "failure"
    assert not {"test_results", "failed_tests"} & service.workflow.keys()


async def test_failed_tests_are_cut_to_what_the_bot_takes(service, job):
    tests = [{"name": f"t{n}", "message": "é" * 900, "stacktrace": "\n" * 9000} for n in range(1500)]
    (job.folder / "failed.json").write_text(json.dumps(tests))

    code, _ = await job.report(
        status="completed",
        conclusion="failure",
        test_results='{"passed": 0, "failed": 1500}',
        failed_tests="failed.json",
    )

    assert code == 0
    assert service.sizes[0] <= 2 * 1024 * 1024
    assert service.workflow["test_results"]["failed"] == 1500
    told = service.workflow["failed_tests"]
    assert 100 < len(told) <= 1000
    assert told[0] == {"name": "t0", "message": "é" * 512}


async def test_stack_traces_of_the_first_failures_are_kept_as_long_as_they_fit(service, job):
    tests = [{"name": f"t{n}", "message": "m", "stacktrace": "x" * 9000} for n in range(900)]
    (job.folder / "failed.json").write_text(json.dumps(tests))

    await job.report(status="completed", conclusion="failure", failed_tests="failed.json")

    told = service.workflow["failed_tests"]
    assert service.sizes[0] <= 2 * 1024 * 1024
    assert len(told) == 900
    assert told[0]["stacktrace"] == "x" * 4096
    assert "stacktrace" not in told[-1]


def test_the_action_pastes_no_expression_into_its_script():
    action = yaml.safe_load((ACTION / "action.yml").read_text())

    assert ["${{" in step["run"] for step in action["runs"]["steps"]] == [False]


def test_the_readme_lists_every_input_and_its_workflow_uses_only_those():
    inputs = yaml.safe_load((ACTION / "action.yml").read_text())["inputs"]
    readme = (ACTION / "README.md").read_text()
    workflow = yaml.safe_load(re.search(r"```yaml\n(.+?)```", readme, re.DOTALL)[1])

    used = [
        set(step["with"])
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "/actions/report@" in step.get("uses", "")
    ]

    table = readme.partition("## Inputs")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(inputs)
    assert len(used) == 3
    assert set().union(*used) <= set(inputs)


def test_in_the_readme_no_job_that_runs_foreign_code_may_ask_for_a_token():
    readme = (ACTION / "README.md").read_text()
    jobs = yaml.safe_load(re.search(r"```yaml\n(.+?)```", readme, re.DOTALL)[1])["jobs"]

    runs_code = {name for name, job in jobs.items() if any("run" in step for step in job["steps"])}
    may_ask = {name for name, job in jobs.items() if "id-token" in job["permissions"]}

    assert (runs_code, may_ask) == ({"build"}, {"ping", "announce", "report"})
