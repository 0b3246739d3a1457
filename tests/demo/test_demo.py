"""`ootbot demo`: the scenario from start to clean end, unmet expectations, interruption."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time

import aiohttp
import jwt
import pytest
from aiohttp import web

from bot.demo import environment, main, participants
from bot.demo.backends import Backends, PlannedJob
from bot.demo.environment import ExpectationError
from bot.demo.github import SimulatedGitHub
from bot.demo.issuer import Issuer
from bot.demo.scenario import Scenario, findings
from tests.process import PATIENCE

SECONDS = 180
DEMO = (sys.executable, "-m", "bot.cli", "demo")


@pytest.fixture
def variables(tmp_path):
    """Environment variables: options that must not reach the demo's bot, and a folder for temporary files."""
    return os.environ | {"TMPDIR": str(tmp_path), "OOTBOT_PORT": "1", "OOTBOT_APP_ID": "none"}


def run(*options, env):
    return subprocess.run(
        [*DEMO, *options], env=env, check=False, capture_output=True, text=True, timeout=SECONDS
    )


@pytest.mark.nightly  # .ci/run plays it before the tests
def test_the_scenario_runs_from_the_first_webhook_to_a_clean_end(variables, tmp_path):
    done = run("--once", env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("starting ")
    assert lines[1].startswith("HUD ")
    assert "http://127.0.0.1:" in lines[1]
    assert "FAILED" not in done.stdout
    assert any(line.strip().startswith("sign in with ") for line in lines)
    shown = [" ".join(line.split()) for line in lines]
    assert "oot / gate success 1 blocking backend passed" in shown
    assert "oot / gate failure tpu failed" in shown
    assert "ok #1 has exactly one comment, and its author is the App" in shown
    assert shown[-1] == "ok the bot stops cleanly"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_the_scenario_runs_with_the_preset_for_todays_clients(variables):
    done = run("--once", "--preset", "crcr", env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert any(line.startswith("crcr/org/tpu-backend/CI/test failure failed in ") for line in shown)
    assert "ok an L3 failure is shown as failure" in shown


@pytest.mark.nightly
def test_copies_are_compared_and_a_second_database_is_rebuilt_from_them(variables, tmp_path):
    done = run("--once", "--sink", str(tmp_path / "copies"), env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert shown[-5:] == [
        "ok all copies are sent",
        "ok the copies in archive are what is stored",
        "ok the copies in copies are what is stored",
        "ok the bot stops cleanly",
        "ok a second database, rebuilt from the archive, holds the same records",
    ]


def test_ctrl_c_stops_the_demo_without_errors(variables, tmp_path):
    with subprocess.Popen(
        DEMO, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as demo:
        while not demo.stdout.readline().startswith("HUD "):
            assert demo.poll() is None
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does: the bot gets the signal, too
        output, errors = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 0, output + errors
    assert errors == ""
    assert "FAILED" not in output
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_ends_the_demo_with_the_reason(variables):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("--port", port, env=variables)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in done.stderr
    assert done.stdout == ""


def test_the_usual_port_is_taken_where_it_is_free_and_another_one_where_not(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main.choose_port(port) == 0
        assert capsys.readouterr().out == f"port {port} is taken: a free one is used instead\n"
    assert main.choose_port(port) == port


@pytest.mark.nightly
async def test_unmet_expectations_are_found():
    async with environment.running() as env:
        env.backends[participants.TPU].silent = True
        scenario = Scenario(env)
        await env.ready()
        await scenario.open_pull_request()
        scenario.environment = dataclasses.replace(env, timeout=0.5)
        with pytest.raises(ExpectationError, match="not within") as unmet:
            await scenario.blocking_failure()
        other = await env.github.open_pull(participants.UPSTREAM)
        for app in (None, env.github.state.actions_app):  # a person's comment does not count
            comment = await env.github.comment(scenario.pull, "I have something to say.", by="alice")
            comment.app = app
        found = await findings(env, [scenario.pull, other], [1])
    assert unmet.value.expectation == "the L4 backend's check fails with the two failed tests in its title"
    assert scenario.fulfilled == [
        "the pull request is dispatched to every listed backend",
        "the L2 backend reports its success",
    ]
    problems = {finding.expectation: finding.problem for finding in found}
    assert problems["every webhook was answered 202"] == ""
    assert problems["#1 has exactly one comment, and its author is the App"].startswith(
        '1 comments, ["alice by App('
    )
    assert problems["#2 has exactly one comment, and its author is the App"].startswith("0 comments")
    assert problems["the old commit keeps its verdict"] == "oot / gate, oot / tpu"


# Simulated backends on the simulated GitHub: runs, reports, re-runs, cancellation.


HEAD = "a" * 40
REPO = "org/npu"
OBSERVED = {"workflow_run", "workflow_job"}


class SteppedClock:
    """Real time, but jobs with a duration end only when the test says so."""

    def __init__(self):
        self.asleep = asyncio.Event()
        self.woken = asyncio.Event()

    def now(self):
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds):
        if seconds:
            self.asleep.set()
            await self.woken.wait()


class FakeBot:
    """Receives reports and webhooks in place of the bot, and records their order."""

    def __init__(self, issuer):
        self.issuer = issuer
        self.observed = []  # (event or reported status, attempt, conclusion)
        self.claims = []
        self.reports = []
        self.refuses = set()  # statuses of the reports to refuse
        self.answering = asyncio.Event()  # while cleared, reports wait for their response
        self.answering.set()
        self.called = asyncio.Event()
        self.queued = asyncio.Event()
        self.disconnected = asyncio.Event()

    async def webhook(self, request):
        body, event = await request.json(), request.headers["X-GitHub-Event"]
        if event in OBSERVED and body["action"] == "completed":
            self.observed.append((event, body[event]["run_attempt"], body[event]["conclusion"]))
        if event == "workflow_job" and body["action"] == "queued":
            self.queued.set()
        return web.Response(status=202)

    async def callback(self, request):
        self.claims.append(await self.verified(request.headers["Authorization"].removeprefix("Bearer ")))
        report = await request.json()
        job = report["workflow"]
        self.reports.append(report)
        self.observed.append((job["status"], job["run_attempt"], job.get("conclusion")))
        self.called.set()
        try:
            await self.answering.wait()
        except asyncio.CancelledError:
            self.disconnected.set()
            raise
        if job["status"] in self.refuses:
            return web.json_response({"error": "forbidden", "detail": "No."}, status=403)
        return web.json_response({"ok": True})

    async def verified(self, token):
        async with aiohttp.ClientSession() as http, http.get(f"{self.issuer.url}/.well-known/jwks") as answer:
            keys = jwt.PyJWKSet.from_dict(await answer.json())
        key = keys[jwt.get_unverified_header(token)["kid"]]
        return jwt.decode(token, key, algorithms=["RS256"], audience="ootbot")


class Setup:
    """A GitHub with one repository, its CI, and a bot that dispatches to it."""

    def __init__(self, github, backends, bot, clock, url, app):
        self.github, self.backends, self.bot, self.clock = github, backends, bot, clock
        self.url, self.app = url, app
        self.repo = github.add_repo(REPO)

    @property
    def run(self):
        (run,) = self.repo.runs.values()
        return run

    async def api(self, path, body):
        """Post to the API as the App; what the call causes continues in the background."""
        now = int(time.time())
        claims = {"iss": str(self.app.app_id), "iat": now - 30, "exp": now + 300}
        signed = {
            "Authorization": f"Bearer {jwt.encode(claims, self.app.private_key_pem, algorithm='RS256')}"
        }
        url = f"{self.github.api_url}/repos/{REPO}"
        async with aiohttp.ClientSession(headers={"User-Agent": "test"}, raise_for_status=True) as http:
            async with http.get(f"{url}/installation", headers=signed) as answer:
                number = (await answer.json())["id"]
            tokens = f"{self.github.api_url}/app/installations/{number}/access_tokens"
            async with http.post(tokens, headers=signed) as answer:
                token = (await answer.json())["token"]
            async with http.post(f"{url}/{path}", json=body, headers={"Authorization": f"token {token}"}):
                pass
        await self.github.settled()

    async def dispatch(self, action="opened"):
        """Dispatch an event of a pull request to the backend."""
        payload = {
            "delivery_id": "d-1", "event_type": "pull_request", "schema_version": 1,
            "payload": {"action": action, "pull_request": {"head": {"sha": HEAD}}},
            "callback_url": f"{self.url}/callback", "callback_token": "t",
        }  # fmt: skip
        await self.api("dispatches", {"event_type": "pull_request", "client_payload": payload})

    async def dispatch_and_settle(self):
        """Dispatch, and let the backend finish."""
        await self.dispatch()
        await self.backends.settled()


@pytest.fixture
async def setup(app_key):
    clock = SteppedClock()
    clock.woken.set()
    github, issuer = SimulatedGitHub(clock=clock), Issuer(clock=clock)
    await github.start()
    await issuer.start()
    bot = FakeBot(issuer)
    application = web.Application()
    application.router.add_post("/hooks", bot.webhook)
    application.router.add_post("/callback", bot.callback)
    runner = web.AppRunner(application, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    app = github.register_app(webhook_url=f"{url}/hooks", webhook_secret="s", private_key_pem=app_key)
    backends = Backends(github, issuer, clock=clock)
    yield Setup(github, backends, bot, clock, url, app)
    await backends.stop()
    await github.stop()
    await issuer.stop()
    await runner.cleanup()


async def test_a_job_reports_before_it_and_its_run_are_completed(setup):
    backend = setup.backends.add(REPO, PlannedJob(counts={"passed": 2, "failed": 0}))
    await setup.dispatch_and_settle()
    assert setup.bot.observed == [
        ("in_progress", 1, None),
        ("completed", 1, "success"),
        ("workflow_job", 1, "success"),
        ("workflow_run", 1, "success"),
    ]
    assert [report.exit_code for report in backend.reports] == [0, 0]


async def test_a_report_names_its_run_and_dispatch_and_its_token_names_the_run(setup):
    setup.backends.add(REPO, PlannedJob(counts={"passed": 2, "failed": 0}))
    await setup.dispatch_and_settle()
    report, claims, run = setup.bot.reports[-1], setup.bot.claims[-1], setup.run
    (job,) = setup.repo.jobs.values()
    assert report["delivery_id"] == "d-1"
    assert report["callback_token"] == "t"
    assert report["workflow"]["run_id"] == claims["run_id"] == str(run.id)
    assert report["workflow"]["check_run_id"] == claims["check_run_id"] == str(job.id)
    assert report["workflow"]["url"] == f"{setup.github.url}/{REPO}/actions/runs/{run.id}"
    assert report["workflow"]["test_results"] == {"passed": 2, "failed": 0}
    assert claims["repository"] == REPO
    assert claims["repository_id"] == str(setup.repo.id)


async def test_failed_tests_are_reported_by_name(setup):
    failing = PlannedJob(conclusion="failure", failed_tests=({"name": "test_x", "message": "1 is not 2"},))
    setup.backends.add(REPO, failing)
    await setup.dispatch_and_settle()
    assert setup.bot.reports[-1]["workflow"]["failed_tests"] == [{"name": "test_x", "message": "1 is not 2"}]


async def test_a_rerun_repeats_the_failed_jobs_as_planned_for_that_attempt(setup):
    backend = setup.backends.add(REPO)
    backend.plan(PlannedJob(name="build"), PlannedJob(name="test", conclusion="failure"))
    backend.plan(PlannedJob(name="build"), PlannedJob(name="test"), attempt=2)
    await setup.dispatch_and_settle()
    assert setup.bot.observed[-1] == ("workflow_run", 1, "failure")
    setup.bot.observed.clear()
    await setup.api(f"actions/runs/{setup.run.id}/rerun-failed-jobs", {})
    await setup.backends.settled()
    assert setup.bot.observed == [
        ("in_progress", 2, None),
        ("completed", 2, "success"),
        ("workflow_job", 2, "success"),
        ("workflow_run", 2, "success"),
    ]
    assert {report.job for report in backend.reports if report.run_attempt == 2} == {"test"}


async def test_a_rerun_of_everything_repeats_every_job(setup):
    backend = setup.backends.add(REPO, PlannedJob(name="build"), PlannedJob(name="test"))
    await setup.dispatch_and_settle()
    await setup.api(f"actions/runs/{setup.run.id}/rerun", {})
    await setup.backends.settled()
    again = sorted((each.job, each.status) for each in backend.reports if each.run_attempt == 2)
    assert again == [
        ("build", "completed"),
        ("build", "in_progress"),
        ("test", "completed"),
        ("test", "in_progress"),
    ]


async def test_a_backend_may_report_another_conclusion_than_github_has(setup):
    backend = setup.backends.add(REPO)
    backend.plan(PlannedJob(conclusion="failure", reported="success"), head=HEAD)
    await setup.dispatch_and_settle()
    assert setup.bot.observed[-3:] == [
        ("completed", 1, "success"),
        ("workflow_job", 1, "failure"),
        ("workflow_run", 1, "failure"),
    ]


async def test_a_refused_report_fails_the_job_and_prints_the_reason(setup):
    backend = setup.backends.add(REPO)
    setup.bot.refuses = {"completed"}
    await setup.dispatch_and_settle()
    assert setup.bot.observed[-1] == ("workflow_run", 1, "failure")
    assert "answered 403 forbidden: No." in backend.reports[-1].output


@pytest.mark.parametrize(("silent", "action"), [(True, "opened"), (False, "closed")])
async def test_a_silent_backend_and_a_closed_pull_request_start_no_run(setup, silent, action):
    setup.backends.add(REPO, silent=silent)
    await setup.dispatch(action)
    await setup.backends.settled()
    assert setup.bot.observed == []
    assert setup.repo.runs == {}


async def test_a_cancelled_run_is_reported_as_such(setup):
    setup.clock.woken.clear()
    setup.backends.add(REPO, PlannedJob(seconds=600))
    await setup.dispatch()
    await setup.clock.asleep.wait()
    await setup.api(f"actions/runs/{setup.run.id}/cancel", {})
    setup.clock.woken.set()
    await setup.backends.settled()
    assert setup.bot.observed == [
        ("in_progress", 1, None),
        ("workflow_job", 1, "cancelled"),
        ("workflow_run", 1, "cancelled"),
        ("completed", 1, "cancelled"),
    ]


async def test_without_a_free_runner_jobs_stay_queued(setup):
    backend = setup.backends.add(REPO)
    setup.backends.runners.clear()
    await setup.dispatch()
    await setup.bot.queued.wait()
    assert [job.status for job in setup.repo.jobs.values()] == ["queued"]
    assert backend.steps == []
    setup.backends.runners.set()
    await setup.backends.settled()
    assert setup.bot.observed[-1] == ("workflow_run", 1, "success")


async def test_a_run_cancelled_while_it_is_queued_reports_nothing(setup):
    backend = setup.backends.add(REPO)
    setup.backends.runners.clear()
    await setup.dispatch()
    await setup.bot.queued.wait()
    await setup.api(f"actions/runs/{setup.run.id}/cancel", {})
    setup.backends.runners.set()
    await setup.backends.settled()
    assert backend.reports == []
    assert setup.bot.observed == [("workflow_job", 1, "cancelled"), ("workflow_run", 1, "cancelled")]


async def test_stopping_cancels_a_report_in_progress(setup):
    setup.bot.answering.clear()
    backend = setup.backends.add(REPO)
    await setup.dispatch()
    await setup.bot.called.wait()
    await setup.backends.stop()
    await asyncio.wait_for(setup.bot.disconnected.wait(), PATIENCE)
    assert backend.reports == []
    assert setup.bot.observed == [("in_progress", 1, None)]
