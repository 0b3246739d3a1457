"""A dry run sends nothing, shows what would be sent, and says by its exit code whether anything is wrong."""

import subprocess
import sys

from bot.core import files
from tests.actions.reported import DISPATCH


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
