"""The report: the JSON body for ootbot's callback, built from the event and the inputs.

Everything about the dispatch is read from the event file, so that no text of a pull request ever
passes through a shell or an environment variable.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import junit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

MAX_BODY = 2 * 1024 * 1024  # bytes; the bot refuses more
MAX_FAILED_TESTS = 1000
# Bytes of each text of a failed test; the bot has the same limits for message and stack trace.
MAX_WORD = {"name": 1024, "classname": 1024, "file": 1024, "message": 1024, "stacktrace": 4096}
STATUSES = ("in_progress", "completed")
CONCLUSIONS = (
    "success",
    "failure",
    "cancelled",
    "skipped",
    "timed_out",
    "neutral",
    "action_required",
    "startup_failure",
    "stale",
)
COUNTS = ("passed", "failed", "skipped", "total")


class InputError(Exception):
    """An input is missing or invalid; the message says which one and what it needs."""


def read_event(path: str) -> dict[str, Any]:
    """Return the dispatch's client_payload from the event file, empty when there is none.

    A repository_dispatch contains it directly, a workflow_dispatch as JSON in an input of that name.
    """
    if not path:
        return {}
    try:
        with Path(path).open(encoding="utf-8") as file:
            event = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read the event file {path}: {error}") from error
    event = event if isinstance(event, dict) else {}
    payload = event.get("client_payload") or _from_inputs(event.get("inputs"))
    return payload if isinstance(payload, dict) else {}


def _from_inputs(inputs: object) -> object:
    """Return the client_payload from a workflow_dispatch's inputs; None when it was started by hand."""
    text = inputs.get("client_payload") if isinstance(inputs, dict) else None
    if not isinstance(text, str) or not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the input client_payload is not JSON: {error}") from error


def build(
    options: argparse.Namespace, dispatch: dict[str, Any], warn: Callable[[str], None]
) -> dict[str, Any]:
    """Return the report as a JSON object.

    Raises InputError when something required is missing. Test results, failed tests and
    environment that cannot be read are left out with a warning: the conclusion matters more.
    """
    delivery = options.delivery_id or dispatch.get("delivery_id")
    if not delivery:
        raise InputError(
            "there is no delivery_id: run on an ootbot dispatch, or give `delivery-id` (the "
            "upstream commit) for a nightly or periodic report"
        )
    report = {
        "event_type": options.event_type or dispatch.get("event_type"),
        "delivery_id": delivery,
        "payload": dispatch.get("payload"),
        "callback_token": dispatch.get("callback_token"),
        "workflow": _workflow(options, warn),
    }
    return {key: value for key, value in report.items() if value is not None}


def encode(report: dict[str, Any]) -> bytes:
    """Return the report as JSON, dropping details of failed tests that would not fit."""
    failed_tests = report["workflow"].get("failed_tests", [])
    excess = len(_json(report)) - MAX_BODY
    for word in ("stacktrace", "message"):
        for test in reversed(failed_tests):
            if excess > 0 and word in test:
                excess -= len(_json(test.pop(word)))
    while excess > 0 and failed_tests:
        excess -= len(_json(failed_tests.pop()))
    return _json(report)


def _workflow(options: argparse.Namespace, warn: Callable[[str], None]) -> dict[str, Any]:
    """Return the report's `workflow` object, without empty fields."""
    results, failed_tests = _tests(options, warn)
    reported = {
        "schema_version": 1,
        **_verdict(options),
        "name": options.workflow_name or os.environ.get("GITHUB_WORKFLOW"),
        "url": options.run_url or _run_url(),
        "run_id": options.run_id or os.environ.get("GITHUB_RUN_ID"),
        "run_attempt": _attempt(options.run_attempt or os.environ.get("GITHUB_RUN_ATTEMPT", "1")),
        "job_name": options.job_name or os.environ.get("GITHUB_JOB"),
        "check_run_id": options.check_run_id or _own_check_run(options),
        "test_results": results,
        "failed_tests": failed_tests,
        "triage_verdict": _triage(options.triage_verdict, warn),
        "artifact_url": options.artifact_url,
        "environment": _environment(options.environment, warn),
    }
    for field, option in (
        ("name", "workflow-name"),
        ("run_id", "run-id"),
        ("job_name", "job-name"),
    ):
        if not reported[field]:
            raise InputError(f"`{option}` is needed outside GitHub Actions")
    return {key: value for key, value in reported.items() if value}


def _verdict(options: argparse.Namespace) -> dict[str, str]:
    """Return status, conclusion and their timestamp."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if options.status not in STATUSES:
        raise InputError(f"`status` must be one of {', '.join(STATUSES)}, not {options.status!r}")
    if options.status == "in_progress":
        return {"status": "in_progress", "started_at": now}
    if options.conclusion not in CONCLUSIONS:
        raise InputError(
            f"`conclusion` must be one of {', '.join(CONCLUSIONS)} when the status is completed, "
            f"not {options.conclusion!r}"
        )
    return {"status": "completed", "conclusion": options.conclusion, "completed_at": now}


def _run_url() -> str:
    """Return the page of this run on GitHub, or an empty string elsewhere."""
    words = [os.environ.get(f"GITHUB_{word}", "") for word in ("SERVER_URL", "REPOSITORY", "RUN_ID")]
    return "{}/{}/actions/runs/{}".format(*words) if all(words) else ""


def _attempt(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"`run-attempt` must be a number, not {text!r}")
    return int(text)


def _own_check_run(options: argparse.Namespace) -> str:
    """Return this job's check run, unless the report is about a job of another name."""
    return "" if options.job_name else os.environ.get("JOB_CHECK_RUN_ID", "")


def _tests(
    options: argparse.Namespace, warn: Callable[[str], None]
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return the counts and the failed tests from the sources that the inputs name."""
    counts: dict[str, int] = {}
    failures: list[Any] = []
    try:
        if options.test_results.startswith("junit:"):
            outcome = junit.read(options.test_results[len("junit:") :].strip())
            counts, failures = outcome.counts, outcome.failures
        elif options.test_results:
            counts = _counts(options.test_results)
    except junit.UnreadableError as error:
        warn(f"`test-results` are left out: {error}")
    try:
        if options.failed_tests:
            failures = _failed_tests(options.failed_tests)
    except (OSError, ValueError, RecursionError) as error:
        warn(f"`failed-tests` are left out: {error}")
    return counts, [_trimmed(test) for test in failures[:MAX_FAILED_TESTS]]


def _counts(text: str) -> dict[str, int]:
    """Read `{"passed": 1, ...}`; raise UnreadableError unless all are counts."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise junit.UnreadableError(f"neither JSON nor junit:PATH ({error})") from error
    if not isinstance(given, dict):
        raise junit.UnreadableError("not a JSON object of counts")
    counts = {key: given[key] for key in COUNTS if key in given}
    for key, value in counts.items():
        if type(value) is not int or value < 0:
            raise junit.UnreadableError(f"{key} is not a count: {value!r}")
    return counts


def _failed_tests(given: str) -> list[dict[str, Any]]:
    """Read a JSON array, given as text or as the path of a file that holds it."""
    if not given.lstrip().startswith("["):
        with Path(given).open(encoding="utf-8") as file:
            given = file.read(junit.MAX_BYTES)
    tests = json.loads(given)
    if not isinstance(tests, list):
        raise ValueError("not a JSON array")  # noqa: TRY004 - the caller treats it as bad JSON
    return [test for test in tests if isinstance(test, dict) and test.get("name")]


def _trimmed(test: dict[str, Any]) -> dict[str, Any]:
    """Return a failed test with its texts truncated, and only the fields the bot knows."""
    trimmed: dict[str, Any] = {
        key: cut(str(test[key]), limit) for key, limit in MAX_WORD.items() if test.get(key)
    }
    if type(test.get("line")) is int and test["line"] > 0:
        trimmed["line"] = test["line"]
    return trimmed


def cut(text: str, limit: int) -> str:
    """Return at most `limit` bytes of the text as UTF-8, without NUL and partial characters."""
    encoded = text.replace("\0", "").encode("utf-8", "replace")
    return encoded[:limit].decode("utf-8", "ignore")


def _triage(given: str, warn: Callable[[str], None]) -> dict[str, Any]:
    """Read a JSON object, given as text or as the path of a file that holds it."""
    if not given:
        return {}
    try:
        if not given.lstrip().startswith("{"):
            with Path(given).open(encoding="utf-8") as file:
                given = file.read(junit.MAX_BYTES)
        verdict = json.loads(given)
    except (OSError, ValueError, RecursionError) as error:
        warn(f"`triage-verdict` is left out: {error}")
        return {}
    if not isinstance(verdict, dict):
        warn("`triage-verdict` is left out: it is not a JSON object")
        return {}
    return verdict


def _environment(text: str, warn: Callable[[str], None]) -> dict[str, str]:
    """Read a JSON object that describes the machine, such as its driver's version."""
    if not text:
        return {}
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        warn(f"`environment` is left out: it is not JSON ({error})")
        return {}
    if not isinstance(given, dict):
        warn("`environment` is left out: it is not a JSON object")
        return {}
    return {key: value if isinstance(value, str) else _json(value).decode() for key, value in given.items()}


def _json(value: Any) -> bytes:
    """Return compact JSON; non-ASCII is escaped, since an event may contain lone surrogates."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")
