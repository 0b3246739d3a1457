"""The action's script keeps what could not be delivered, and sends it again."""

import json
import subprocess

import pytest

from tests.actions.older_python import PYTHON_38
from tests.actions.reported import ACCEPTED, ACTION

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
