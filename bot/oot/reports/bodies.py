"""Bodies of reports as callers send them, read strictly or leniently, and of the answers to them."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Annotated, Any, Literal, NoReturn

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from bot.core.escaping import safe_url
from bot.core.json_fields import FULL_NAME, clean
from bot.web.answers import REF, Answer, No, Yes, any_of, matching, one_of, reference

MOST_COUNT = 2**53
MOST_NUMBER = 2**53
MOST_REPORTS = 500
# characters, and bytes as stored: two of each fit into an entry of PostgreSQL's indexes
MOST_NAME, MOST_ID = (1000, 200)
MOST_ATTEMPT = 999_999_999
STATUSES = frozenset({"in_progress", "completed"})
CONCLUSIONS = frozenset(
    {
        "success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required", "stale",
        "startup_failure",
    }
)  # fmt: skip
NAMED_LEVELS = {f"L{level}": level for level in (1, 2, 3, 4)}
LEVELS: dict[Any, int] = NAMED_LEVELS | {level: level for level in NAMED_LEVELS.values()}

NO_NUL = {"pattern": r"^[^\u0000]*$"}  # for the document, as all that is checked after decoding
Name = Annotated[str, Meta(min_length=1, max_length=MOST_NAME, extra_json_schema=NO_NUL)]
TextId = Annotated[str, Meta(min_length=1, max_length=MOST_ID, extra_json_schema=NO_NUL)]
Id = TextId | Annotated[int, Meta(ge=0, le=2**63 - 1)]
Attempt = Annotated[
    Annotated[str, matching("0*[1-9][0-9]*"), Meta(extra_json_schema={"maxLength": 9})]
    | Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MOST_ATTEMPT})]
    | None,
    Meta(description=f"a whole number from 1 to {MOST_ATTEMPT:,}, also as a text; 1 when left out"),
]
CONCLUDES = Meta(
    extra_json_schema={
        "if": {"properties": {"status": {"enum": ["completed"]}}},
        "then": {"required": ["conclusion"], "properties": {"conclusion": {"type": "string"}}},
    }
)
Text = str | None
Status = Annotated[str, one_of(sorted(STATUSES))]
Conclusion = Annotated[str, one_of(sorted(CONCLUSIONS))]
Count = Annotated[int, Meta(ge=0, le=MOST_COUNT)] | None
Outcome = Annotated[str, one_of((*sorted(STATUSES), "ignored"))]
Code = Annotated[int, Meta(description="the status it would have had alone")]
Seconds = Annotated[float, Meta(ge=0, le=10**9)] | None

Sha = Annotated[str, matching("[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")]
FullName = Annotated[str, matching(FULL_NAME)]
MOST_BYTES = 16 * 1024
MOST_EVIDENCE = 10
MOST_SUMMARY, MOST_REASON, MOST_WORDS, MOST_URL = 1_000, 300, 200, 500  # letters

VerdictText = Annotated[str, Meta(min_length=1)]
NO_NAME = "(no name)"
COUNTS = ("passed", "failed", "skipped", "total")
TEXTS = ("classname", "file", "message", "stacktrace")


class FailedTest(Struct):
    """One failed test."""

    name: str
    classname: Text = None
    file: Text = None
    line: Any = None
    message: Text = None
    stacktrace: Text = None


class TestResults(Struct):
    """How many tests there were."""

    passed: Count = None
    failed: Count = None
    skipped: Count = None
    total: Count = None


class Workflow(Struct):
    """What a backend's CI says of one job."""

    status: Status
    name: Name
    run_id: Id
    job_name: Name
    conclusion: Annotated[Conclusion | None, Meta(description="with `completed`")] = None
    url: Text = None
    run_attempt: Attempt = None
    check_run_id: Id | None = None
    test_results: TestResults | None = None
    failed_tests: list[FailedTest] | None = None
    failed_tests_detail: Annotated[
        list[FailedTest] | None, Meta(description="the same under another name; `failed_tests` counts")
    ] = None
    artifact_url: Text = None
    environment: dict[str, Any] | None = None
    started_at: Annotated[Any, Meta(description="ISO 8601; shown where it can be true")] = None
    completed_at: Annotated[Any, Meta(description="ISO 8601; shown where it can be true")] = None
    triage_verdict: Annotated[Any, Meta(description="the backend's own verdict on why the job failed")] = None


class Report(Struct):
    """A report on one job."""

    delivery_id: TextId
    workflow: Annotated[Workflow, CONCLUDES]
    event_type: Text = None
    callback_token: Text = None
    payload: Annotated[Raw, Meta(description="the dispatch's payload, sent back")] = field(
        default_factory=lambda: Raw(b"null")
    )
    downstream_repo: Any = None
    verified_repo: Any = None
    downstream_repo_level: Any = None
    level: Any = None


class Batch(Struct):
    """Many reports."""

    reports: Annotated[list[Annotated[Raw, reference("Report")]], Meta(min_length=1, max_length=MOST_REPORTS)]


class Metrics(Struct):
    """What a relay measured, in seconds."""

    queue_time: Seconds = None
    execution_time: Seconds = None


class Trusted(Struct):
    """What a relay vouches for."""

    verified_repo: FullName
    downstream_repo_level: (
        Annotated[str, one_of(NAMED_LEVELS)] | Annotated[int, one_of(NAMED_LEVELS.values())]
    )
    ci_metrics: Metrics | None = None


class EchoedRepository(Struct):
    """The upstream repository."""

    full_name: FullName


class EchoedHead(Struct):
    """The head of the pull request."""

    sha: Sha | None = None


class EchoedPull(Struct):
    """The pull request."""

    number: Annotated[int, Meta(ge=1, le=MOST_NUMBER)] | None = None
    head: EchoedHead | None = None


class Echoed(Struct):
    """The payload as GitHub sent it: it names upstream repository, pull request and commit."""

    repository: EchoedRepository
    pull_request: EchoedPull | None = None
    after: Sha | None = None


class Untrusted(Struct):
    """What a relay passes on unchecked: a report whose payload has to say what it is about."""

    callback_payload: Annotated[
        Raw,
        reference(
            "Report", properties={"payload": {"$ref": REF.format(name="Echoed")}}, required=["payload"]
        ),
    ]


class Envelope(Struct):
    """A report that an outside relay passes on."""

    trusted: Trusted
    untrusted: Untrusted


class Accepted(Answer, frozen=True, kw_only=True):
    """Stored, or stored already (`duplicate`)"""

    status: Outcome
    duplicate: Yes | UnsetType = UNSET


class AcceptedOfBatch(Struct, frozen=True, kw_only=True):
    """A report of a batch that was accepted."""

    code: Code
    ok: Yes = True
    status: Outcome
    duplicate: Yes | UnsetType = UNSET


class RefusedOfBatch(Struct, frozen=True, kw_only=True):
    """A report of a batch that was refused."""

    code: Code
    ok: No = False
    error: str
    detail: str
    retry_after: int | UnsetType = UNSET


class BatchAnswer(Answer, frozen=True, kw_only=True):
    """An answer for each report"""

    reports: list[Annotated[Any, any_of((AcceptedOfBatch, RefusedOfBatch))]]


class Suspect(Struct, omit_defaults=True):
    """The upstream change that is suspected."""

    pr: Annotated[int, Meta(gt=0, le=2**53)] | None = None
    commit: Annotated[str, Meta(pattern="^[0-9a-fA-F]{7,40}$")] | None = None
    reason: VerdictText | None = None


class Evidence(Struct, omit_defaults=True):
    """Evidence for the verdict."""

    job: VerdictText | None = None
    test: VerdictText | None = None
    log_url: VerdictText | None = None
    excerpt: VerdictText | None = None


class Analyzer(Struct, omit_defaults=True):
    """The analyzer that came to this verdict."""

    name: VerdictText | None = None
    version: VerdictText | None = None
    model: VerdictText | None = None
    prompt_version: VerdictText | None = None


class Triage(Struct, omit_defaults=True):
    """Why a job failed, according to its backend."""

    category: Literal["upstream", "backend", "infra", "flake", "unknown"]
    confidence: Literal["high", "medium", "low"]
    summary: VerdictText
    suspected_upstream: Suspect | None = None
    evidence: list[Evidence] | None = None
    reproduced_on_retry: bool | None = None
    analyzer: Analyzer | None = None
    analyzed_at: VerdictText | None = None


class _Body(Struct):
    """A report in which no member is required yet."""

    delivery_id: Any = None
    workflow: Any = None
    event_type: Any = None
    callback_token: Any = None
    payload: Raw = field(default_factory=lambda: Raw(b"null"))
    downstream_repo: Any = None
    verified_repo: Any = None
    downstream_repo_level: Any = None
    level: Any = None


class _Needed(Struct):
    """The members that even a lenient reader requires."""

    delivery_id: TextId
    workflow: Workflow


_decoder = msgspec.json.Decoder(_Body)


def read_verdict(sent: Any) -> dict[str, Any] | None:
    """Return a verdict as it is stored; None for one that does not have the shape of version 1."""
    if not isinstance(sent, dict) or str(sent.get("schema_version")).strip() != "1":
        return None
    try:
        if len(msgspec.json.encode(sent)) > MOST_BYTES:
            return None
        verdict = msgspec.convert(sent, Triage)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError):
        return None
    if not _coherent(verdict):
        return None
    verdict.evidence = [
        _cut_evidence(evidence) for evidence in (verdict.evidence or [])[:MOST_EVIDENCE]
    ] or None
    verdict.summary = _cut(verdict.summary, MOST_SUMMARY) or ""
    if verdict.suspected_upstream:
        verdict.suspected_upstream.reason = _cut(verdict.suspected_upstream.reason, MOST_REASON)
    if verdict.analyzer:
        for name in verdict.analyzer.__struct_fields__:
            setattr(verdict.analyzer, name, _cut(getattr(verdict.analyzer, name), MOST_WORDS))
    kept: dict[str, Any] = msgspec.to_builtins(verdict)
    return kept


def read_leniently(body: bytes, flags: dict[str, Any]) -> Report:
    """Read a report, flagging what is dropped; raises DecodeError where what identifies the job is missing."""
    sent = decode_leniently(_decoder, body)
    workflow = _workflow(sent.workflow, flags) if isinstance(sent.workflow, dict) else sent.workflow
    needed = msgspec.convert({"delivery_id": read_text(sent.delivery_id), "workflow": workflow}, _Needed)
    return Report(
        delivery_id=needed.delivery_id,
        workflow=needed.workflow,
        event_type=read_text(sent.event_type),
        callback_token=read_text(sent.callback_token),
        payload=sent.payload,
        downstream_repo=sent.downstream_repo,
        verified_repo=sent.verified_repo,
        downstream_repo_level=sent.downstream_repo_level,
        level=sent.level,
    )


def decode_leniently(decoder: Any, body: bytes) -> Any:
    """Decode JSON, also with escaped lone surrogates, which some encoders write for names of files."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\u" not in body:
            raise
        return decoder.decode(_without_surrogates(body))


def read_text(value: Any) -> str | None:
    """Return a text, or a number as one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


def read_number(value: Any, least: float, most: float) -> float | None:
    """Return a number, also from text, within its bounds."""
    try:
        parsed = (
            float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
        )
    except (ValueError, OverflowError):
        return None
    return parsed if parsed is not None and math.isfinite(parsed) and least <= parsed <= most else None


def _coherent(verdict: Triage) -> bool:
    """Whether the parts of a verdict agree: only a verdict on upstream names a suspect, and links are safe."""
    suspect = verdict.suspected_upstream
    if suspect and (verdict.category != "upstream" or not (suspect.pr or suspect.commit)):
        return False
    links = [evidence.log_url for evidence in verdict.evidence or () if evidence.log_url]
    if not all(len(link) <= MOST_URL and safe_url(link) for link in links):
        return False
    return verdict.analyzed_at is None or _is_time(verdict.analyzed_at)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return len(text) <= MOST_WORDS


def _cut_evidence(evidence: Evidence) -> Evidence:
    return Evidence(
        job=_cut(evidence.job, MOST_WORDS),
        test=_cut(evidence.test, MOST_WORDS),
        log_url=evidence.log_url,
        excerpt=_cut(evidence.excerpt, MOST_SUMMARY),
    )


def _cut(text: str | None, most: int) -> str | None:
    return text and clean(text.strip())[:most]


def _workflow(sent: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a workflow as a strict reader takes them."""
    kept = dict(sent)
    kept["name"] = read_text(sent.get("name")) or _dropped("name", NO_NAME, flags)
    kept["job_name"] = read_text(sent.get("job_name"))
    kept["run_id"] = _id(sent.get("run_id"))
    kept["check_run_id"] = _optional(sent, "check_run_id", _id, flags)
    kept["run_attempt"] = _attempt(sent.get("run_attempt"), flags)
    for name in ("url", "artifact_url"):
        kept[name] = _optional(sent, name, _as_it_is(str), flags)
    kept["environment"] = _optional(sent, "environment", _as_it_is(dict), flags)
    kept["test_results"] = _counts(_optional(sent, "test_results", _as_it_is(dict), flags), flags)
    for name in ("failed_tests", "failed_tests_detail"):
        kept[name] = _failed_tests(_optional(sent, name, _as_it_is(list), flags), flags)
    if sent.get("status") == "completed":
        kept["conclusion"] = _conclusion(sent.get("conclusion"), flags)
    else:
        kept.pop("conclusion", None)
    return kept


def _conclusion(sent: Any, flags: dict[str, Any]) -> str:
    word = sent.strip().lower() if isinstance(sent, str) else ""
    if word in CONCLUSIONS:
        return word
    flags["no_conclusion"] = True
    return "neutral"


def _attempt(sent: Any, flags: dict[str, Any]) -> int:
    if sent is None:
        return 1
    attempt = read_number(sent, 1, MOST_ATTEMPT)
    return int(attempt) if attempt else _dropped("run_attempt", 1, flags)


def _id(sent: Any) -> str | None:
    return read_text(int(sent) if isinstance(sent, bool) else sent) or None


def _counts(sent: Any, flags: dict[str, Any]) -> dict[str, int] | None:
    """Return whole numbers, also those written as texts or with a fraction of zero."""
    if sent is None:
        return None
    counts = {name: read_number(sent[name], 0, MOST_COUNT) for name in COUNTS if sent.get(name) is not None}
    kept = {name: int(count) for name, count in counts.items() if count is not None and count.is_integer()}
    if len(kept) < len(counts):
        flags["counts_dropped"] = True
    return kept


def _failed_tests(sent: Any, flags: dict[str, Any]) -> list[dict[str, Any]] | None:
    if sent is None:
        return None
    read_ones = [_failed_test(test) for test in sent]
    kept = [test for test in read_ones if test is not None]
    if len(kept) < len(read_ones):
        flags["failed_tests_dropped"] = len(read_ones) - len(kept)
    return kept


def _failed_test(sent: Any) -> dict[str, Any] | None:
    """Return one failed test; a text alone is its name."""
    fields = sent if isinstance(sent, dict) else {"name": sent}
    name = read_text(fields.get("name"))
    if name is None:
        return None
    return {"name": name, "line": fields.get("line"), **{key: read_text(fields.get(key)) for key in TEXTS}}


def _optional(sent: dict[str, Any], name: str, read_one: Any, flags: dict[str, Any]) -> Any:
    """Return a field that may be left out; one that cannot be read is dropped."""
    value = sent.get(name)
    if value is None or value == "":
        return None
    read = read_one(value)
    return _dropped(name, None, flags) if read is None else read


def _as_it_is(kind: type) -> Any:
    return lambda value: value if isinstance(value, kind) else None


def _dropped(name: str, instead: Any, flags: dict[str, Any]) -> Any:
    flags[f"{name}_dropped"] = True
    return instead


def _without_surrogates(body: bytes) -> bytes:
    """Return the JSON with a question mark for every lone surrogate."""
    try:
        return json.dumps(json.loads(body, parse_constant=_refuse), ensure_ascii=False).encode(
            "utf-8", "replace"
        )
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(f"JSON is malformed: {error}") from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
