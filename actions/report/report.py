"""Report a job of a backend's CI to ootbot; run this when the job starts and when it is done.

Every option may also come from the environment, as action.yml passes it: --job-name from
INPUT_JOB_NAME and so on. Needs Python 3.9 and nothing else.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if sys.version_info < (3, 9):  # noqa: UP036 - runners may have an older one
    sys.exit(
        f"report.py needs Python 3.9 or newer, and this is {sys.version.split()[0]}: use another `python3`"
    )

import body
import dry_run
import unsent
import uploads
from sending import DeliveryError, LostError, Sender, Tokens

if TYPE_CHECKING:
    from typing import Any

EXAMPLES = """\
examples:
  in GitHub Actions, with `permissions: id-token: write` (see README.md for the whole workflow):
    report.py --status in_progress --job-name build
    report.py --status completed --job-name build --conclusion failure --test-results 'junit:*.xml'

  in another CI, after saving the dispatch's event and an OpenID token for the audience `ootbot`:
    report.py --status completed --conclusion success --event event.json --token-file token.txt \\
      --workflow-name nightly --job-name test --run-id 8d0c-41 --run-url https://ci.example/8d0c-41

  to send what could not be delivered, once the bot is there again, from a later step of the same run:
    report.py --resend "$RUNNER_TEMP/ootbot-unsent"

  to see what would be sent, and what is wrong with it:
    report.py --dry-run --status completed --conclusion success --event event.json --job-name build

  a nightly run that was not dispatched, about an upstream commit:
    report.py --status completed --conclusion success --event-type nightly --delivery-id "$SHA" \\
      --url https://ootbot.example/api/oot/callback
"""


def main() -> int:
    """Build the report, deliver it, and return the exit code."""
    options = parse()
    if options.dry_run == "true":
        return dry_run.run(options)
    if options.resend:
        return unsent.resend(options, warn)
    try:
        dispatch = body.read_event(options.event)
        report = body.build(options, dispatch, warn)
        url = options.url or str(dispatch.get("callback_url") or "")
        sender = Sender(url, Tokens(options.audience, options.token_file), options.deadline)
        answer = _send(sender, url, body.encode(report))
    except (body.InputError, DeliveryError) as error:
        if options.fail_on_error == "false":
            warn(str(error))
            return 0
        annotate("error", str(error))
        return 1
    print("ootbot took the report:", one_line(str(answer.get("status") or "accepted")))
    if sent := uploads.send_all(options, report, sender, warn):
        print(f"ootbot took {sent} uploaded file{'s' if sent > 1 else ''}")
    return 0


def _send(sender: Sender, url: str, report: bytes) -> dict[str, Any]:
    """Send a report; one that is lost is kept in a file. Raises DeliveryError."""
    try:
        return sender.send(report)
    except LostError as error:
        if file := unsent.keep(url, report):
            raise LostError(f"{error} It is kept: --resend {file} sends it from this run again.") from error
        raise


def parse() -> argparse.Namespace:
    """Read the command line; missing options are taken from the environment."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def option(name: str, meaning: str, default: str = "", **more: object) -> None:
        variable = "INPUT_" + name.upper().replace("-", "_")
        given = os.environ.get(variable, "").strip() or default
        parser.add_argument(f"--{name}", help=meaning, default=given, **more)  # type: ignore[arg-type] # only type= is passed

    option("status", "in_progress or completed (required)")
    option("conclusion", "with completed: " + ", ".join(body.CONCLUSIONS))
    option("job-name", "the job the report is about; name each leg of a matrix (default: this job)")
    option("workflow-name", "default: GITHUB_WORKFLOW")
    option("test-results", 'counts as JSON {"passed": 3, "failed": 1, "skipped": 0}, or junit:GLOB')
    option(
        "failed-tests",
        "JSON array of {name, classname, file, line, message, stacktrace}, or its file",
    )
    option("test-reports", "path or glob of JUnit XML files, run reports (.jsonl) or ZIP archives to upload")
    option("usage-log", "path of a usage log to upload")
    option("triage-verdict", "JSON object that says why the job failed (schema_version 1), or its file")
    option("artifact-url", "where to download logs and packages")
    option("environment", "JSON object that describes the machine")
    option("run-id", "default: GITHUB_RUN_ID")
    option("run-attempt", "default: GITHUB_RUN_ATTEMPT, else 1")
    option("run-url", "default: the run's page on GitHub")
    option("check-run-id", "GitHub's id of the job's check run")
    option(
        "event",
        "file with the event that started this run",
        os.environ.get("GITHUB_EVENT_PATH", ""),
    )
    option("event-type", "default: from the dispatch; nightly or periodic without one")
    option("delivery-id", "default: from the dispatch; the upstream commit without one")
    option("url", "the bot's callback (default: from the dispatch)")
    option("audience", "audience of the OpenID token (default: ootbot)", "ootbot")
    option("token-file", "file with an OpenID token from another CI; or set OOTBOT_TOKEN")
    option("deadline", "seconds to keep retrying while the bot is down (default: 600)", "600", type=float)
    option("resend", "send reports that could not be delivered: a kept file, or a folder of them")
    option("fail-on-error", "false: a lost report is a warning, and the exit code 0", "true")
    option(
        "dry-run", "send nothing: print what would be sent and what is wrong; exit code 1 if anything is",
        nargs="?", const="true",
    )  # fmt: skip
    return parser.parse_args()


def warn(sentence: str) -> None:
    """Print a warning without failing the job."""
    annotate("warning", sentence)


def annotate(kind: str, sentence: str) -> None:
    """Print an annotation that GitHub shows with the run, or a line on standard error in another CI."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        # Escaped for workflow commands, so that no response can inject a command of its own.
        escaped = sentence.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        print(f"::{kind} title=ootbot report::{escaped}", flush=True)
    else:
        print(f"{kind}: {sentence}", file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """Return the text without line breaks, which could start a workflow command in a log."""
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
