"""Do the simulated backends start, report and re-run as real ones do? Against the simulated GitHub."""

from __future__ import annotations

import asyncio
import time

import aiohttp
import jwt
import pytest
from aiohttp import web

from bot.demo.backends import Backends, PlannedJob
from bot.demo.github import SimulatedGitHub
from bot.demo.issuer import Issuer

HEAD = "a" * 40
REPO = "org/npu"
TOLD_OF = {"workflow_run", "workflow_job"}


class SteppedClock:
    """Real time, but a job that takes its time ends when a test says so."""

    def __init__(self):
        self.asleep = asyncio.Event()
        self.woken = asyncio.Event()

    def now(self):
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds):
        if seconds:
            self.asleep.set()
            await self.woken.wait()


class Bot:
    """Stands where the bot does: takes reports and webhooks and remembers the order of it all."""

    def __init__(self, issuer):
        self.issuer = issuer
        self.heard = []  # (event or reported status, attempt, conclusion)
        self.claims = []
        self.reports = []
        self.refuses = set()  # statuses of reports
        self.answers = asyncio.Event()  # cleared, a report waits for its answer
        self.answers.set()
        self.called = asyncio.Event()
        self.queued = asyncio.Event()
        self.hung_up = asyncio.Event()

    async def webhook(self, request):
        body, event = await request.json(), request.headers["X-GitHub-Event"]
        if event in TOLD_OF and body["action"] == "completed":
            self.heard.append((event, body[event]["run_attempt"], body[event]["conclusion"]))
        if event == "workflow_job" and body["action"] == "queued":
            self.queued.set()
        return web.Response(status=202)

    async def callback(self, request):
        self.claims.append(await self.verified(request.headers["Authorization"].removeprefix("Bearer ")))
        report = await request.json()
        job = report["workflow"]
        self.reports.append(report)
        self.heard.append((job["status"], job["run_attempt"], job.get("conclusion")))
        self.called.set()
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.hung_up.set()
            raise
        if job["status"] in self.refuses:
            return web.json_response({"error": "forbidden", "detail": "No."}, status=403)
        return web.json_response({"ok": True})

    async def verified(self, token):
        async with aiohttp.ClientSession() as http, http.get(f"{self.issuer.url}/.well-known/jwks") as answer:
            keys = jwt.PyJWKSet.from_dict(await answer.json())
        key = keys[jwt.get_unverified_header(token)["kid"]]
        return jwt.decode(token, key, algorithms=["RS256"], audience="ootbot")


class Stage:
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
        """Ask GitHub for something, as the App; what it sets off goes on in the background."""
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
        """Tell the backend of a pull request."""
        payload = {
            "delivery_id": "d-1",
            "event_type": "pull_request",
            "schema_version": 1,
            "payload": {"action": action, "pull_request": {"head": {"sha": HEAD}}},
            "callback_url": f"{self.url}/callback",
            "callback_token": "t",
        }
        await self.api("dispatches", {"event_type": "pull_request", "client_payload": payload})

    async def played(self):
        """Let the backend do all that it was dispatched for."""
        await self.dispatch()
        await self.backends.settled()


@pytest.fixture
async def stage(app_key):
    clock = SteppedClock()
    clock.woken.set()
    github, issuer = SimulatedGitHub(clock=clock), Issuer(clock=clock)
    await github.start()
    await issuer.start()
    bot = Bot(issuer)
    application = web.Application()
    application.router.add_post("/hooks", bot.webhook)
    application.router.add_post("/callback", bot.callback)
    runner = web.AppRunner(application, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    app = github.register_app(webhook_url=f"{url}/hooks", webhook_secret="s", private_key_pem=app_key)
    backends = Backends(github, issuer, clock=clock)
    yield Stage(github, backends, bot, clock, url, app)
    await backends.stop()
    await github.stop()
    await issuer.stop()
    await runner.cleanup()


async def test_a_job_reports_before_it_and_its_run_are_over(stage):
    backend = stage.backends.add(REPO, PlannedJob(counts={"passed": 2, "failed": 0}))
    await stage.played()
    assert stage.bot.heard == [
        ("in_progress", 1, None),
        ("completed", 1, "success"),
        ("workflow_job", 1, "success"),
        ("workflow_run", 1, "success"),
    ]
    assert [report.exit_code for report in backend.reports] == [0, 0]


async def test_a_report_names_run_and_dispatch_and_its_token_vouches_for_the_run(stage):
    stage.backends.add(REPO, PlannedJob(counts={"passed": 2, "failed": 0}))
    await stage.played()
    report, claims, run = stage.bot.reports[-1], stage.bot.claims[-1], stage.run
    (job,) = stage.repo.jobs.values()
    assert report["delivery_id"] == "d-1"
    assert report["callback_token"] == "t"
    assert report["workflow"]["run_id"] == claims["run_id"] == str(run.id)
    assert report["workflow"]["check_run_id"] == claims["check_run_id"] == str(job.id)
    assert report["workflow"]["url"] == f"{stage.github.url}/{REPO}/actions/runs/{run.id}"
    assert report["workflow"]["test_results"] == {"passed": 2, "failed": 0}
    assert claims["repository"] == REPO
    assert claims["repository_id"] == str(stage.repo.id)


async def test_failed_tests_are_reported_by_name(stage):
    failing = PlannedJob(conclusion="failure", failed_tests=({"name": "test_x", "message": "1 is not 2"},))
    stage.backends.add(REPO, failing)
    await stage.played()
    assert stage.bot.reports[-1]["workflow"]["failed_tests"] == [{"name": "test_x", "message": "1 is not 2"}]


async def test_a_rerun_does_the_failed_jobs_again_as_planned_for_that_attempt(stage):
    backend = stage.backends.add(REPO)
    backend.plan(PlannedJob(name="build"), PlannedJob(name="test", conclusion="failure"))
    backend.plan(PlannedJob(name="build"), PlannedJob(name="test"), attempt=2)
    await stage.played()
    assert stage.bot.heard[-1] == ("workflow_run", 1, "failure")
    stage.bot.heard.clear()
    await stage.api(f"actions/runs/{stage.run.id}/rerun-failed-jobs", {})
    await stage.backends.settled()
    assert stage.bot.heard == [
        ("in_progress", 2, None),
        ("completed", 2, "success"),
        ("workflow_job", 2, "success"),
        ("workflow_run", 2, "success"),
    ]
    assert {report.job for report in backend.reports if report.run_attempt == 2} == {"test"}


async def test_a_rerun_of_everything_does_every_job_again(stage):
    backend = stage.backends.add(REPO, PlannedJob(name="build"), PlannedJob(name="test"))
    await stage.played()
    await stage.api(f"actions/runs/{stage.run.id}/rerun", {})
    await stage.backends.settled()
    again = sorted((each.job, each.status) for each in backend.reports if each.run_attempt == 2)
    assert again == [
        ("build", "completed"),
        ("build", "in_progress"),
        ("test", "completed"),
        ("test", "in_progress"),
    ]


async def test_a_backend_may_say_of_one_head_what_github_contradicts(stage):
    backend = stage.backends.add(REPO)
    backend.plan(PlannedJob(conclusion="failure", reported="success"), head=HEAD)
    await stage.played()
    assert stage.bot.heard[-3:] == [
        ("completed", 1, "success"),
        ("workflow_job", 1, "failure"),
        ("workflow_run", 1, "failure"),
    ]


async def test_a_refused_report_fails_the_job_and_says_why(stage):
    backend = stage.backends.add(REPO)
    stage.bot.refuses = {"completed"}
    await stage.played()
    assert stage.bot.heard[-1] == ("workflow_run", 1, "failure")
    assert "answered 403 forbidden: No." in backend.reports[-1].output


@pytest.mark.parametrize(("silent", "action"), [(True, "opened"), (False, "closed")])
async def test_a_silent_backend_and_one_told_of_the_end_start_nothing(stage, silent, action):
    stage.backends.add(REPO, silent=silent)
    await stage.dispatch(action)
    await stage.backends.settled()
    assert stage.bot.heard == []
    assert stage.repo.runs == {}


async def test_a_cancelled_run_is_reported_as_such(stage):
    stage.clock.woken.clear()
    stage.backends.add(REPO, PlannedJob(seconds=600))
    await stage.dispatch()
    await stage.clock.asleep.wait()
    await stage.api(f"actions/runs/{stage.run.id}/cancel", {})
    stage.clock.woken.set()
    await stage.backends.settled()
    assert stage.bot.heard == [
        ("in_progress", 1, None),
        ("workflow_job", 1, "cancelled"),
        ("workflow_run", 1, "cancelled"),
        ("completed", 1, "cancelled"),
    ]


async def test_without_a_free_runner_jobs_stay_queued(stage):
    backend = stage.backends.add(REPO)
    stage.backends.runners.clear()
    await stage.dispatch()
    await stage.bot.queued.wait()
    assert [job.status for job in stage.repo.jobs.values()] == ["queued"]
    assert backend.steps == []
    stage.backends.runners.set()
    await stage.backends.settled()
    assert stage.bot.heard[-1] == ("workflow_run", 1, "success")


async def test_a_run_cancelled_while_it_is_queued_reports_nothing(stage):
    backend = stage.backends.add(REPO)
    stage.backends.runners.clear()
    await stage.dispatch()
    await stage.bot.queued.wait()
    await stage.api(f"actions/runs/{stage.run.id}/cancel", {})
    stage.backends.runners.set()
    await stage.backends.settled()
    assert backend.reports == []
    assert stage.bot.heard == [("workflow_job", 1, "cancelled"), ("workflow_run", 1, "cancelled")]


async def test_stopping_ends_a_report_under_way(stage):
    stage.bot.answers.clear()
    backend = stage.backends.add(REPO)
    await stage.dispatch()
    await stage.bot.called.wait()
    await stage.backends.stop()
    await asyncio.wait_for(stage.bot.hung_up.wait(), 5)
    assert backend.reports == []
    assert stage.bot.heard == [("in_progress", 1, None)]
