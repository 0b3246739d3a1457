"""Does the reporting action say the right thing, and does it get through? Run as a runner runs it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from aiohttp import web

ACTION = Path(__file__).parents[2] / "actions" / "report"
ACCEPTED = (200, {"ok": True, "status": "accepted"})
DISPATCH = {
    "event_type": "pull_request",
    "delivery_id": "3b1d7c1e-0000-4000-8000-000000000001",
    "schema_version": 1,
    "payload": {"action": "opened", "pull_request": {"number": 7, "title": "Add a kernel"}},
    "callback_token": "header.claims.signature",
}


@dataclass
class Service:
    """The bot's callback and the runner's token service, saying what a test has told them to."""

    url: str = ""
    answers: list = field(default_factory=list)  # of the callback; accepted when empty
    token_answers: list = field(default_factory=list)
    headers: dict = field(default_factory=dict)  # of every refusal
    reports: list = field(default_factory=list)
    sizes: list = field(default_factory=list)
    authorizations: list = field(default_factory=list)
    times: list = field(default_factory=list)
    tokens: list = field(default_factory=list)  # audience and request token of each

    async def token(self, request):
        if self.token_answers:
            return web.Response(status=self.token_answers.pop(0))
        self.tokens.append((request.query["audience"], request.headers["Authorization"]))
        return web.json_response({"value": f"oidc-{len(self.tokens)}"})

    async def callback(self, request):
        text = await request.read()
        self.times.append(time.monotonic())
        self.sizes.append(len(text))
        self.reports.append(json.loads(text))
        self.authorizations.append(request.headers["Authorization"])
        status, body = self.answers.pop(0) if self.answers else ACCEPTED
        if status == "reset":
            request.transport.abort()
            return web.Response()
        if isinstance(body, str):
            return web.Response(status=status, text=body, content_type="text/html")
        headers = {} if status == 200 else self.headers
        return web.json_response(body, status=status, headers=headers)

    @property
    def workflow(self):
        """What the last report said about the job."""
        return self.reports[-1]["workflow"]


@pytest.fixture
async def service():
    service = Service()
    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_get("/token", service.token)
    app.router.add_post("/callback", service.callback)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    service.url = "http://127.0.0.1:{}".format(*runner.addresses[0][1:])
    yield service
    await runner.cleanup()


@dataclass
class Job:
    """A job of a backend's workflow: an event file, an environment, and a folder to work in."""

    folder: Path
    environment: dict

    def event(self, client_payload):
        text = json.dumps({"action": "pull_request", "client_payload": client_payload})
        (self.folder / "event.json").write_text(text)

    async def run(self, *command):
        """Run a command in the job and return its exit code and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode, output.decode()

    async def report(self, **inputs):
        """Use the action with these inputs, as a runner would."""
        action = yaml.safe_load((ACTION / "action.yml").read_text())
        given = {name: declared.get("default", "") for name, declared in action["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        (step,) = action["runs"]["steps"]
        for variable, expression in step["env"].items():
            context, name = re.fullmatch(r"\${{ (\w+)\.([\w-]+) }}", expression).groups()
            self.environment[variable] = given[name] if context == "inputs" else "9001"
        script = self.folder / "step.sh"
        script.write_text(step["run"])
        return await self.run("bash", "--noprofile", "--norc", "-eo", "pipefail", str(script))


@pytest.fixture
def job(service, tmp_path):
    job = Job(
        tmp_path,
        {
            "PATH": os.environ["PATH"],
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "request-secret",
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{service.url}/token?api-version=2.0",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ACTION),
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
            "GITHUB_JOB": "report",
            "GITHUB_REPOSITORY": "org/npu",
            "GITHUB_RUN_ATTEMPT": "2",
            "GITHUB_RUN_ID": "4455",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_WORKFLOW": "Device CI",
        },
    )
    job.event({**DISPATCH, "callback_url": f"{service.url}/callback"})
    return job


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


@pytest.mark.parametrize(
    "refusal",
    [
        (503, {"ok": False}),
        (429, {"ok": False}),
        (408, {"ok": False}),
        (502, "<html>"),
        ("reset", None),
    ],
    ids=lambda refusal: str(refusal[0]),
)
async def test_a_report_survives_a_bot_that_is_away(service, job, refusal):
    service.answers = [refusal]

    code, output = await job.report(status="in_progress")

    assert code == 0
    assert len(service.reports) == 2
    assert "trying again" in output


async def test_retry_after_is_honoured(service, job):
    service.answers, service.headers = [(429, {"error": "rate_limited"})], {"Retry-After": "2"}

    code, _ = await job.report(status="in_progress")

    assert code == 0
    assert service.times[1] - service.times[0] >= 2


async def test_a_token_service_that_is_away_is_asked_again(service, job):
    service.token_answers = [503]

    code, _ = await job.report(status="in_progress")

    assert code == 0
    assert len(service.reports) == 1


async def test_trying_again_ends_at_the_deadline(service, job):
    service.answers, service.headers = [(503, {"error": "unavailable"})], {"Retry-After": "3600"}

    code, output = await job.report(status="in_progress", deadline="30")

    assert code == 1
    assert len(service.reports) == 1
    assert "answered 503 unavailable; gave up" in output


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413])
async def test_a_refusal_is_final_and_says_why(service, job, status):
    service.answers = [(status, {"ok": False, "error": "a_code", "detail": "What to do."})]

    code, output = await job.report(status="in_progress")

    assert code == 1
    assert len(service.reports) == 1
    host = service.url.removeprefix("http://")
    assert output == f"::error title=ootbot report::{host} answered {status} a_code: What to do.\n"


async def test_a_refusal_may_be_only_a_warning(service, job):
    service.answers = [(404, {"error": "unknown_dispatch", "detail": "No such dispatch."})]

    code, output = await job.report(status="in_progress", fail_on_error="false")

    assert code == 0
    assert output.startswith("::warning title=ootbot report::")


COMMAND = "\n::stop-commands::x\r\n::add-mask::y"


@pytest.mark.parametrize("status", [400, 503])
async def test_an_answer_cannot_give_the_runner_commands(service, job, status):
    service.answers = [(status, {"error": COMMAND, "detail": COMMAND})]

    _, output = await job.report(status="in_progress")

    commands = [line for line in output.splitlines() if line.startswith("::")]
    assert "add-mask" in output
    assert len(commands) == (status == 400)


async def test_an_input_cannot_give_the_runner_commands(job):
    _, output = await job.report(status="in_progress", test_results=f"junit:x{COMMAND}")

    warning, _accepted = output.splitlines()
    assert warning.endswith("matches x%0A::stop-commands::x%0D%0A::add-mask::y")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_the_token_is_not_taken_along_a_redirect(service, job, status):
    service.answers = [(status, {})]
    service.headers = {"Location": f"{service.url}/token?audience=stolen"}

    code, output = await job.report(status="in_progress")

    assert code == 1
    assert f"answered {status}" in output
    assert [audience for audience, _ in service.tokens] == ["ootbot"]


async def test_a_page_that_is_not_the_bot_is_no_success(service, job):
    service.answers = [(200, "<html>Welcome</html>")]

    code, output = await job.report(status="in_progress")

    assert code == 1
    assert "is the address right?" in output


async def test_a_job_without_the_permission_is_told_which_one(service, job):
    del job.environment["ACTIONS_ID_TOKEN_REQUEST_URL"]

    code, output = await job.report(status="in_progress")

    assert code == 1
    assert "permissions: id-token: write" in output
    assert service.reports == []


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ({"status": "done"}, "`status` must be one of in_progress, completed"),
        ({"status": "completed"}, "`conclusion` must be one of success"),
        ({"status": "completed", "conclusion": "green"}, "not 'green'"),
        ({"status": "in_progress", "url": "http://bot.example/callback"}, "https:// address"),
        ({"status": "in_progress", "url": "https://bot.example:x/"}, "https:// address"),
    ],
)
async def test_inputs_that_make_no_report_are_named(service, job, inputs, named):
    code, output = await job.report(**inputs)

    assert code == 1
    assert named in output
    assert service.reports == []


async def test_words_of_a_pull_request_never_reach_a_shell(service, job):
    hostile = "$(touch pwned) `touch pwned` \"; touch pwned; ' | touch pwned\n::set-output name=x::y"
    payload = {"action": hostile, "pull_request": {"title": hostile, "head": {"ref": hostile}}}
    job.event(
        {
            "callback_url": f"{service.url}/callback",
            "callback_token": hostile,
            "delivery_id": hostile,
            "event_type": hostile,
            "payload": payload,
        }
    )

    code, output = await job.report(
        status="completed", conclusion="success", job_name=hostile, artifact_url=hostile
    )

    assert (code, output) == (0, "ootbot took the report: accepted\n")
    assert service.reports[0]["payload"] == payload
    assert service.reports[0]["delivery_id"] == hostile
    assert service.workflow["job_name"] == hostile
    assert not (job.folder / "pwned").exists()


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


@pytest.mark.parametrize("handed_over", ["file", "variable"])
async def test_another_ci_brings_its_own_token(service, job, handed_over):
    job.environment = {"PATH": job.environment["PATH"]}
    command = [sys.executable, str(ACTION / "report.py"), "--event", "event.json"]
    if handed_over == "file":
        (job.folder / "token").write_text("theirs\n")
        command += ["--token-file", "token"]
    else:
        job.environment["OOTBOT_TOKEN"] = "theirs"

    told = {
        "status": "in_progress",
        "workflow-name": "pipeline",
        "job-name": "a/b",
        "run-id": "8d-1",
    }
    code, output = await job.run(*command, *(f"--{key}={value}" for key, value in told.items()))

    assert (code, output) == (0, "ootbot took the report: accepted\n")
    assert service.authorizations == ["Bearer theirs"]
    assert service.workflow["run_id"] == "8d-1"
    assert service.workflow["run_attempt"] == 1


async def test_another_ci_is_told_what_is_missing(service, job):
    job.environment = {"PATH": job.environment["PATH"]}
    command = [
        sys.executable,
        str(ACTION / "report.py"),
        "--event=event.json",
        "--status=in_progress",
    ]

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
    assert len(used) == 2
    assert set().union(*used) <= set(inputs)


def test_in_the_readme_no_job_that_runs_foreign_code_may_ask_for_a_token():
    readme = (ACTION / "README.md").read_text()
    jobs = yaml.safe_load(re.search(r"```yaml\n(.+?)```", readme, re.DOTALL)[1])["jobs"]

    runs_code = {name for name, job in jobs.items() if any("run" in step for step in job["steps"])}
    may_ask = {name for name, job in jobs.items() if "id-token" in job["permissions"]}

    assert (runs_code, may_ask) == ({"build"}, {"announce", "report"})
