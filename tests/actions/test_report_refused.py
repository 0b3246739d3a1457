"""The action's script where the bot is away, refuses or is attacked through it; and what it keeps to send again."""

import json
import subprocess

import pytest

from tests.actions.older_python import PYTHON_38
from tests.actions.reported import ACCEPTED, ACTION


@pytest.mark.parametrize(
    "refusal",
    [(503, {"ok": False}), (429, {"ok": False}), (408, {"ok": False}), (502, "<html>"), ("reset", None)],
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


DOWN = (503, {"error": "unavailable", "detail": "later"})


@pytest.fixture
def job(job, tmp_path):
    job.environment["RUNNER_TEMP"] = str(tmp_path)
    return job


def kept(job):
    return sorted((job.folder / "ootbot-unsent").glob("*.unsent.json"))


async def test_a_report_that_was_lost_is_sent_again(service, job):
    service.answers = [DOWN]
    code, output = await job.report(status="completed", conclusion="failure", job_name="build", deadline="0")
    (file,) = kept(job)
    assert code == 1
    assert f"--resend {file}" in output
    assert "oidc" not in file.read_text()
    lost = service.reports.pop()
    code, output = await job.run("python3", str(ACTION / "report.py"), "--resend", str(file.parent))
    assert (code, kept(job)) == (0, [])
    assert service.reports == [lost]
    assert output == f"ootbot took {file}\n"
    assert service.authorizations[-1] != service.authorizations[0]  # a fresh token


async def test_what_is_refused_stays_and_the_others_are_sent(service, job):
    for name in ("build", "test"):
        service.answers = [DOWN]
        await job.report(status="completed", conclusion="success", job_name=name, deadline="0")
    service.answers = [(403, {"error": "forbidden", "detail": "no"}), ACCEPTED]
    (job.folder / "ootbot-unsent" / "broken.unsent.json").write_text("[]")
    code, output = await job.run(
        "python3", str(ACTION / "report.py"), "--resend", str(job.folder / "ootbot-unsent")
    )
    assert code == 1
    assert len(kept(job)) == 2
    assert "not a report that was kept" in output


async def test_a_verdict_on_why_it_failed_is_passed_on(service, job):
    verdict = {"schema_version": 1, "category": "infra", "confidence": "low", "summary": "no room"}
    await job.report(
        status="completed", conclusion="failure", job_name="a", triage_verdict=json.dumps(verdict)
    )
    assert service.workflow["triage_verdict"] == verdict
    (job.folder / "verdict.json").write_text(json.dumps(verdict))
    await job.report(status="completed", conclusion="failure", job_name="a", triage_verdict="verdict.json")
    assert service.workflow["triage_verdict"] == verdict
    for wrong in ("nothing.json", "{", "[]"):
        code, output = await job.report(
            status="completed", conclusion="failure", job_name="a", triage_verdict=wrong
        )
        assert code == 0
        assert "`triage-verdict` is left out" in output
        assert "triage_verdict" not in service.workflow


@pytest.mark.skipif(not PYTHON_38, reason="no Python 3.8 here")
def test_an_older_python_is_told_what_is_needed():
    done = subprocess.run([PYTHON_38, ACTION / "report.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("report.py needs Python 3.9 or newer, and this is 3.8.")
