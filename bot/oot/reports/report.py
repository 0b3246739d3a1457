"""A backend's report: one JSON body, checked field by field and cut to what is stored.

Nothing here is trusted: `bot.oot.reports.authorization` decides who reports, for which pull request and at which level.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from bot.core.json_fields import as_int, as_time, clean
from bot.core.links import safe_url
from bot.oot.reports import bodies, lenient, triage
from bot.oot.reports.bodies import CONCLUSIONS, MOST_ATTEMPT, MOST_ID, MOST_NAME, STATUSES, TestResults
from bot.oot.reports.payload_echo import Echo, read_echo
from bot.oot.results.tables import JobAttempt, JobName, JobOutcome, JobReported

if TYPE_CHECKING:
    from bot.oot.reports.bodies import FailedTest

MOST_DEPTH = 64
MOST_FAILED_TESTS = 1000
MOST_MESSAGE, MOST_STACKTRACE = 1024, 4096  # bytes
MOST_ENVIRONMENT, MOST_ENVIRONMENT_BYTES = 50, 4000  # entries, and all of them together


class Malformed(ValueError):
    """A malformed report; the message names the field."""


class ReportedJob(JobOutcome, JobReported, JobName, JobAttempt):
    """The columns of a job that a report has values for, as its backend claims them."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """One well-formed report; every value is the caller's claim."""

    event_type: str
    delivery_id: str
    callback_token: str | None
    job: ReportedJob
    echo: Echo = field(default_factory=Echo)
    backend: Any = None  # of any type: compared, never trusted
    level: Any = None
    flags: dict[str, Any] = field(default_factory=dict)


_decoder = msgspec.json.Decoder(bodies.Report)


def parse_report(body: bytes, *, leniently: bool = False) -> Report:
    """Read a report; raises Malformed naming the field that is missing or wrong.

    `leniently`: only what identifies the job has to be there, the rest is flagged.
    """
    if too_deep(body):
        raise Malformed(f"the body is nested more than {MOST_DEPTH} levels deep")
    flags: dict[str, Any] = {}
    try:
        sent = lenient.read_report(body, flags) if leniently else _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise Malformed(str(error).replace("$.", "")) from None
    except (RecursionError, UnicodeDecodeError):
        raise Malformed("the body is not readable JSON") from None
    work = sent.workflow
    if work.status not in STATUSES:
        raise Malformed(f"workflow.status is {work.status[:40]!r}: send in_progress or completed")
    if work.status == "completed" and work.conclusion not in CONCLUSIONS:
        raise Malformed(f"workflow.conclusion must be one of {', '.join(sorted(CONCLUSIONS))} when completed")
    _refuse_nul(sent)
    return Report(
        event_type=clean(sent.event_type or "")[:100],
        delivery_id=_stored(sent.delivery_id, MOST_ID),
        callback_token=sent.callback_token,
        job=_job(work, flags),
        echo=read_echo(sent.payload),
        backend=sent.downstream_repo or sent.verified_repo,
        level=sent.downstream_repo_level or sent.level,
        flags=flags,
    )


def _job(work: bodies.Workflow, flags: dict[str, Any]) -> ReportedJob:
    counts = work.test_results or TestResults()
    known = [count for count in (counts.passed, counts.failed, counts.skipped) if count is not None]
    tests = work.failed_tests_detail if work.failed_tests is None else work.failed_tests
    return {
        "status": work.status,
        "conclusion": work.conclusion if work.status == "completed" else None,
        "workflow_name": _stored(work.name, MOST_NAME),
        "job_name": _stored(work.job_name, MOST_NAME),
        "run_id": _stored(str(work.run_id), MOST_ID),
        "run_attempt": _attempt(work.run_attempt),
        "check_run_id": None if work.check_run_id is None else _stored(str(work.check_run_id), MOST_ID),
        "workflow_run_url": _url(work.url, "url", flags),
        "artifact_url": _url(work.artifact_url, "artifact_url", flags),
        "total_tests": counts.total if counts.total is not None else sum(known) if known else None,
        "passed_tests": counts.passed,
        "failed_tests": counts.failed,
        "skipped_tests": counts.skipped,
        "failed_tests_json": _failed_tests(tests, flags),
        "environment": _environment(work.environment),
        "reported_started_at": _time(work.started_at, flags),
        "reported_completed_at": _time(work.completed_at, flags),
        "triage_verdict": _triage(work.triage_verdict, flags),
    }


ONE_KIND = bytes.maketrans(b"[]", b"{}")
NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))


def too_deep(body: bytes) -> bool:
    """Return whether JSON is nested deeper than any report has reason to be."""
    if body.count(b"{") + body.count(b"[") <= MOST_DEPTH:
        return False
    outside_strings = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    left = b"".join(outside_strings).translate(ONE_KIND, NO_BRACKET)
    for _ in range(MOST_DEPTH):
        if b"{}" not in left:
            break
        left = left.replace(b"{}", b"")
    return b"{" in left


def _refuse_nul(sent: bodies.Report) -> None:
    """Refuse what no database can hold in what identifies a job."""
    work = sent.workflow
    named = {
        "delivery_id": sent.delivery_id,
        "workflow.name": work.name,
        "workflow.job_name": work.job_name,
        "workflow.run_id": str(work.run_id),
        "workflow.check_run_id": str(work.check_run_id),
    }
    for name, value in named.items():
        if "\x00" in value:
            raise Malformed(f"{name} holds a NUL character")


def _stored(text: str, most: int) -> str:
    """Return a name or id as an index holds it: of one with more bytes the beginning, and a hash of the whole."""
    if len(text) <= most // 4 or len(text.encode()) <= most:  # no letter is longer than four bytes
        return clean(text)
    mark = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{_cut(text, most - len(mark) - 1)} {mark}"


def _attempt(value: str | int | None) -> int:
    if value is None:
        return 1
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0
    if not 0 < value <= MOST_ATTEMPT:
        raise Malformed("workflow.run_attempt must be a whole number from 1")
    return value


def _time(sent: Any, flags: dict[str, Any]) -> int | None:
    """Return a reported time; one that cannot be read makes the job's times odd, as one that cannot be true does."""
    at = as_time(sent) if isinstance(sent, str) else None
    if at is None and sent is not None and sent != "":
        flags["odd_times"] = True
    return at


def _triage(sent: Any, flags: dict[str, Any]) -> dict[str, Any] | None:
    found = None if sent is None else triage.read_verdict(sent)
    if found is None and sent is not None:
        flags["triage_verdict_dropped"] = True
    return found


def _url(text: str | None, name: str, flags: dict[str, Any]) -> str | None:
    if not text:
        return None
    safe = safe_url(text)
    if safe is None:
        flags[f"{name}_dropped"] = True
    return safe


def _failed_tests(tests: list[FailedTest] | None, flags: dict[str, Any]) -> list[dict[str, Any]] | None:
    if tests is None:
        return None
    if len(tests) > MOST_FAILED_TESTS:
        flags["failed_tests_dropped"] = flags.get("failed_tests_dropped", 0) + len(tests) - MOST_FAILED_TESTS
    return [_failed_test(test, flags) for test in tests[:MOST_FAILED_TESTS]]


def _failed_test(test: FailedTest, flags: dict[str, Any]) -> dict[str, Any]:
    kept = {
        "name": _cut(test.name, MOST_MESSAGE),
        "classname": _cut(test.classname, MOST_MESSAGE),
        "file": _cut(test.file, MOST_MESSAGE),
        "line": _line(test.line, flags),
        "message": _cut(test.message, MOST_MESSAGE),
        "stacktrace": _cut(test.stacktrace, MOST_STACKTRACE),
    }
    return {name: value for name, value in kept.items() if value is not None}


def _line(given: Any, flags: dict[str, Any]) -> int | None:
    """Return a line number, also from text; anything else is dropped, so that no report is lost because of it."""
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 10:
        given = int(given)
    line = as_int(given)
    if line is None and given is not None:
        flags["line_dropped"] = True
    return line


def _cut(text: str | None, limit: int) -> str | None:
    """Return the text without what a database refuses, at most `limit` bytes of it."""
    if text is None or len(text) <= limit // 4:  # no letter is longer than four bytes
        return text if text is None else clean(text)
    return clean(text).encode()[:limit].decode(errors="ignore")


def _environment(given: dict[str, Any] | None) -> dict[str, str] | None:
    if given is None:
        return None
    kept: dict[str, str] = {}
    left = MOST_ENVIRONMENT_BYTES
    for name, value in list(given.items())[:MOST_ENVIRONMENT]:
        pair = clean(str(name)[:100]), clean(str(value)[:500])
        left -= sum(len(text.encode()) for text in pair)
        if left < 0:
            break
        kept[pair[0]] = pair[1]
    return kept
