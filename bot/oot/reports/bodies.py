"""Bodies of reports, batches and envelopes as callers send them, and of the answers to them.

Field names are those existing backends send. What a type demands is checked while decoding; the document also tells
what `report` and `envelope` check afterwards.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from bot.core.json_fields import FULL_NAME
from bot.web.answers import REF, Answer, No, Yes, any_of, matching, one_of, reference

MOST_COUNT = 2**53
MOST_NUMBER = 2**53
MOST_REPORTS = 500
MOST_NAME, MOST_ID = (
    1000,
    200,
)  # characters, and bytes as stored: two of each fit into an entry of PostgreSQL's indexes
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
