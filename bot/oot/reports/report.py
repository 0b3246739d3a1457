"""A report, from a backend or in a relay's envelope: one JSON body, checked and cut to what is stored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from bot.core.escaping import safe_url
from bot.core.json_fields import FULL_NAME, as_commit, as_int, as_time, clean
from bot.oot.reports import bodies
from bot.oot.reports.bodies import (
    CONCLUSIONS,
    LEVELS,
    MOST_ATTEMPT,
    MOST_ID,
    MOST_NAME,
    MOST_NUMBER,
    STATUSES,
    TestResults,
)
from bot.oot.results.tables import JobAttempt, JobName, JobOutcome, JobReported

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.oot.reports.bodies import FailedTest
    from bot.oot.results.tables import JobDurations, JobSubject

UNREADABLE = "unreadable"
MOST_DEPTH = 64
MOST_FAILED_TESTS = 1000
MOST_MESSAGE, MOST_STACKTRACE = 1024, 4096  # bytes
MOST_ENVIRONMENT, MOST_ENVIRONMENT_BYTES = 50, 4000  # entries, and all of them together
_decoder = msgspec.json.Decoder(bodies.Report)
ONE_KIND = bytes.maketrans(b"[]", b"{}")
NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
T = TypeVar("T")
LEAST_LEVEL = 2  # of a backend that may report
MOST_SECONDS = 10**9
_envelope = msgspec.json.Decoder(bodies.Envelope)
_batch = msgspec.json.Decoder(bodies.Batch)


@dataclass(frozen=True, kw_only=True)
class Echo:
    """Values of any type, compared or checked, never trusted. None: absent."""

    upstream_repo: Any = None
    pr_number: Any = None
    head_sha: Any = None
    labels: frozenset[Any] | None = None  # None: absent or truncated


class _Named(msgspec.Struct):
    name: Any = None
    full_name: Any = None


class _Head(msgspec.Struct):
    sha: Any = None


class _Pull(msgspec.Struct):
    number: Any = None
    head: _Head | None = None
    labels: list[_Named] | None = None


class _Payload(msgspec.Struct):
    pull_request: _Pull | None = None
    repository: _Named | None = None
    after: Any = None
    head_sha: Any = None  # as clients write it that make up a payload for a run that was not dispatched
    truncated: Any = None


_quick = msgspec.json.Decoder(_Payload | None)


class Malformed(ValueError):
    """A malformed report; the message names the field."""


class ReportedJob(JobOutcome, JobReported, JobName, JobAttempt):
    """The columns of a job that a report has values for, as its backend claims them."""


@dataclass(frozen=True, kw_only=True)
class CheckedReport:
    """One well-formed report; every value is the caller's claim."""

    event_type: str
    delivery_id: str
    callback_token: str | None
    job: ReportedJob
    echo: Echo = field(default_factory=Echo)
    backend: Any = None  # of any type: compared, never trusted
    level: Any = None
    flags: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CheckedEnvelope:
    """One report an outside relay passes on."""

    subject: JobSubject
    level: int
    measured: JobDurations  # by the relay; None: not measured
    report: CheckedReport


class _LenientTrusted(msgspec.Struct):
    verified_repo: Any = None
    downstream_repo_level: Any = None
    ci_metrics: Any = None


class _LenientEnvelope(msgspec.Struct):
    trusted: _LenientTrusted
    untrusted: bodies.Untrusted


_lenient_envelope = msgspec.json.Decoder(_LenientEnvelope)


def read_echo(payload: bytes | msgspec.Raw) -> Echo:
    """Read the echo; only one with unexpected types takes the slow path."""
    try:
        echo = _quick.decode(payload) or _Payload()
    except (msgspec.DecodeError, RecursionError):
        return _slowly(payload)
    pull = echo.pull_request or _Pull()
    labels = [{"name": label.name} for label in pull.labels] if pull.labels is not None else None
    return Echo(
        upstream_repo=echo.repository.full_name if echo.repository else None,
        pr_number=pull.number,
        head_sha=pull.head.sha if pull.head else echo.after or echo.head_sha,
        labels=None if echo.truncated is not None else _names(labels),
    )


def parse_report(body: bytes, *, leniently: bool = False) -> CheckedReport:
    """Read a report; raises Malformed naming the field that is missing or wrong.

    `leniently`: only what identifies the job has to be there, the rest is flagged.
    """
    if too_deep(body):
        raise Malformed(f"the body is nested more than {MOST_DEPTH} levels deep")
    flags: dict[str, Any] = {}
    try:
        sent = bodies.read_leniently(body, flags) if leniently else _decoder.decode(body)
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
    return CheckedReport(
        event_type=clean(sent.event_type or "")[:100],
        delivery_id=_fit_index(sent.delivery_id, MOST_ID),
        callback_token=sent.callback_token,
        job=_job_columns(work, flags),
        echo=read_echo(sent.payload),
        backend=sent.downstream_repo or sent.verified_repo,
        level=sent.downstream_repo_level or sent.level,
        flags=flags,
    )


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


def parse_envelope(body: bytes, *, upstream: str | None = None) -> CheckedEnvelope:
    """Read an envelope and the report in it; raises Malformed naming the field that is missing or wrong.

    With `upstream` it is read leniently: a payload that is missing or odd is flagged, and the report is about that
    repository.
    """
    if upstream is not None:
        return _read_leniently(body, upstream)
    envelope = _decode(_envelope, body)
    trusted = envelope.trusted
    if not FULL_NAME.fullmatch(trusted.verified_repo):
        raise Malformed("trusted.verified_repo must be owner/name")
    if trusted.downstream_repo_level not in LEVELS:
        raise Malformed("trusted.downstream_repo_level must be L1, L2, L3 or L4")
    report = parse_report(bytes(envelope.untrusted.callback_payload))
    measured = trusted.ci_metrics or bodies.Metrics()
    return CheckedEnvelope(
        subject={
            "downstream_repo": trusted.verified_repo,
            "upstream_repo": _upstream(report),
            "pr_number": _number(report),
            "head_sha": _sha(report),
            "delivery_id": report.delivery_id,
        },
        level=LEVELS[trusted.downstream_repo_level],
        measured={"queue_time": measured.queue_time, "execution_time": measured.execution_time},
        report=report,
    )


def split_batch(body: bytes) -> list[bytes]:
    """Return the reports of a batch, unread; raises Malformed unless it holds 1 to 500."""
    return [bytes(report) for report in _decode(_batch, body).reports]


def _slowly(payload: bytes | msgspec.Raw) -> Echo:
    try:
        echo = msgspec.json.decode(payload) or None  # what is empty says nothing
    except (msgspec.DecodeError, RecursionError):
        echo = UNREADABLE
    pull = _member(echo, "pull_request")
    return Echo(
        upstream_repo=_member(_member(echo, "repository"), "full_name"),
        pr_number=_member(pull, "number"),
        head_sha=_member(_member(pull, "head"), "sha") or _member(echo, "after") or _member(echo, "head_sha"),
        labels=None if _member(echo, "truncated") is not None else _names(_member(pull, "labels")),
    )


def _member(of: Any, name: str) -> Any:
    """Return a member, None if absent, UNREADABLE if its parent is no object."""
    if isinstance(of, dict):
        return of.get(name)
    return None if of is None else UNREADABLE


def _names(labels: Any) -> frozenset[Any] | None:
    if labels is None:
        return None
    if not isinstance(labels, list):
        return frozenset({UNREADABLE})
    names = [_member(label, "name") for label in labels]
    return frozenset(name if isinstance(name, str) else UNREADABLE for name in names)


def _job_columns(work: bodies.Workflow, flags: dict[str, Any]) -> ReportedJob:
    counts = work.test_results or TestResults()
    known = [count for count in (counts.passed, counts.failed, counts.skipped) if count is not None]
    tests = work.failed_tests_detail if work.failed_tests is None else work.failed_tests
    return {
        "status": work.status,
        "conclusion": work.conclusion if work.status == "completed" else None,
        "workflow_name": _fit_index(work.name, MOST_NAME),
        "job_name": _fit_index(work.job_name, MOST_NAME),
        "run_id": _fit_index(str(work.run_id), MOST_ID),
        "run_attempt": _attempt(work.run_attempt),
        "check_run_id": None if work.check_run_id is None else _fit_index(str(work.check_run_id), MOST_ID),
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


def _fit_index(text: str, most: int) -> str:
    """Return a name or id that an index can hold: a long one is cut and ends in a hash of the whole."""
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
    """Return a reported time; an unreadable one makes the job's times odd, like an impossible one."""
    at = as_time(sent) if isinstance(sent, str) else None
    if at is None and sent is not None and sent != "":
        flags["odd_times"] = True
    return at


def _triage(sent: Any, flags: dict[str, Any]) -> dict[str, Any] | None:
    verdict = None if sent is None else bodies.read_verdict(sent)
    if verdict is None and sent is not None:
        flags["triage_verdict_dropped"] = True
    return verdict


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
    """Return at most `limit` bytes of a text, without what a database refuses."""
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


def _read_leniently(body: bytes, upstream: str) -> CheckedEnvelope:
    """Read an envelope of which only the report and who it is about have to be there."""
    envelope = _decode(_lenient_envelope, body, leniently=True)
    trusted = envelope.trusted
    if not isinstance(trusted.verified_repo, str) or not FULL_NAME.fullmatch(trusted.verified_repo):
        raise Malformed("trusted.verified_repo must be owner/name")
    report = parse_report(bytes(envelope.untrusted.callback_payload), leniently=True)
    measured = trusted.ci_metrics if isinstance(trusted.ci_metrics, dict) else {}
    level = trusted.downstream_repo_level
    return CheckedEnvelope(
        subject={
            "downstream_repo": trusted.verified_repo,
            "upstream_repo": _or_flagged(_upstream, report, upstream),
            "pr_number": _or_flagged(_number, report, None),
            "head_sha": _or_flagged(_sha, report, None),
            "delivery_id": report.delivery_id,
        },
        level=LEVELS.get(level, LEAST_LEVEL) if isinstance(level, str | int) else LEAST_LEVEL,
        measured={
            "queue_time": bodies.read_number(measured.get("queue_time"), 0, MOST_SECONDS),
            "execution_time": bodies.read_number(measured.get("execution_time"), 0, MOST_SECONDS),
        },
        report=report,
    )


def _or_flagged(read: Callable[[CheckedReport], T], report: CheckedReport, instead: T) -> T:
    try:
        return read(report)
    except Malformed:
        report.flags["payload_dropped"] = True
        return instead


def _decode(decoder: Any, body: bytes, *, leniently: bool = False) -> Any:
    try:
        return bodies.decode_leniently(decoder, body) if leniently else decoder.decode(body)
    except msgspec.DecodeError as error:
        raise Malformed(str(error).replace("$.", "")) from None
    except (RecursionError, UnicodeDecodeError):
        raise Malformed("the body is not readable JSON") from None


def _upstream(report: CheckedReport) -> str:
    name = report.echo.upstream_repo
    if not isinstance(name, str) or not FULL_NAME.fullmatch(name):
        raise Malformed("callback_payload.payload.repository.full_name must be owner/name")
    return name


def _number(report: CheckedReport) -> int | None:
    number = report.echo.pr_number
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= MOST_NUMBER:
        raise Malformed("callback_payload.payload.pull_request.number must be a whole number from 1")
    return number


def _sha(report: CheckedReport) -> str | None:
    """Return the report's commit; in a nightly report that is the delivery_id."""
    if report.echo.head_sha is None:
        return as_commit(report.delivery_id)
    if (sha := as_commit(report.echo.head_sha)) is None:
        raise Malformed("callback_payload.payload names a commit that is not 40 or 64 hexadecimal digits")
    return sha
