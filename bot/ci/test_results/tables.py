"""Tables of test results: known tests and environments, parts and failures of jobs, daily sums, states.

Rows of a job belong to a generation: those that `test_job` names are shown, others are being written, or left to be
deleted.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import sqlalchemy as sa

from bot.ci.collect.receiving import ToldJob
from bot.ci.test_results.job_tables import JOB_KEY, JobKeyRow, Unreadable
from bot.db.rows import Big, Bool, Bytes, Default, Int, Json, Millis, Text, table


class _Owned(TypedDict):
    id: Big  # in blocks only; pages name a test by its digest
    repository_id: Big


class Place(TypedDict):
    """The file and the suite a test stands in."""

    file: Text
    suite: Text


class SuiteRow(_Owned, Place):
    """A suite in a file."""

    last_at: Millis  # the beginning of the day (UTC) on which it was last seen


test_class = table(
    "test_class",
    SuiteRow,
    sa.UniqueConstraint("repository_id", "file", "suite", name="uq_test_class"),
    key=("id",),
)


class TestDigest(TypedDict):
    """What identifies a test in its repository: see bot.ci.test_results.parse.identity."""

    digest: Bytes


class TestCanonical(TypedDict):
    """What is the same for the same test on every device."""

    canonical: Big


class TestName(TypedDict):
    """What a test is called in its suite."""

    name: Text


class TestTimes(TypedDict):
    """When a test was seen; the last times are beginnings of days (UTC)."""

    first_at: Millis
    last_at: Millis
    trusted_first_at: Millis | None  # the same two, of trusted runs alone
    trusted_last_at: Millis | None


class _Suite(TypedDict):
    class_id: Big


class _Declared(TypedDict):
    declared_name: Text | None  # in the source, before a device or type was added
    language: Text | None


class KnownTestRow(_Owned, _Suite, TestDigest, TestCanonical, TestName, _Declared, TestTimes):
    """A test."""


class NamedTestRow(Place, TestDigest, TestName):
    """What a test is shown by."""


class TestRow(KnownTestRow, Place):
    """A test, with the file and suite it stands in."""


test = table(
    "test",
    KnownTestRow,
    sa.UniqueConstraint("repository_id", "digest", name="uq_test"),
    sa.Index("ix_test_class_id", "class_id", "id"),
    sa.Index("ix_test_canonical", "canonical"),
    sa.Index("ix_test_name", "name", postgresql_ops={"name": "text_pattern_ops"}),  # by its beginning
    key=("id",),
)
for _table in (test, test_class):  # no id is ever used again: blocks and sums outlive tests
    _table.dialect_options["sqlite"]["autoincrement"] = True


class _EnvId(TypedDict):
    id: Big
    digest: Bytes  # of all other columns


class EnvRow(TypedDict):
    """Where tests ran; texts are empty where that is not known."""

    os: Text
    arch: Text
    accelerator: Text
    accelerator_version: Text
    device_name: Text
    device_count: Int
    python: Text
    build: Text  # the base name of the job
    config: Text
    env_group: Text  # operating system, accelerator and configuration: what results are compared within


class KnownEnvRow(_EnvId, EnvRow):
    """A known environment."""


test_env = table("test_env", KnownEnvRow, sa.UniqueConstraint("digest"), key=("id",))


class _ObjectId(TypedDict):
    object_id: Big  # as that of ci_fetch


class _PartNames(TypedDict):
    kind: Text
    name: Text  # of the artifact, or of the upload's job
    blob: Text | None  # None: no longer kept


class _Received(TypedDict):
    received_at: Millis


class _Rules(TypedDict):
    # by which its reports were read: see bot.ci.test_results.parse.parsed
    rules: Annotated[Int, Default("0")]


class _Told(TypedDict):
    told: Json[ToldJob] | None  # its job, as another CI tells of it; None: GitHub, or a backend, has a record


class PartRow(JobKeyRow, _ObjectId, _PartNames, Unreadable, _Received, _Rules, _Told):
    """An artifact or upload of a job: its results are made of all of them."""


test_part = table(
    "test_part",
    PartRow,
    sa.Index("ix_test_part_object", "repository_id", "object_id"),
    sa.Index("ix_test_part_received_at", "received_at"),
    key=(*JOB_KEY, "object_id"),
)


class _Files(TypedDict):
    files: Json[list[str]]  # without `.py`


class ExclusionRow(JobKeyRow, _ObjectId, _Files, _Received):
    """Files of tests that a job left out on purpose, as one artifact says."""


test_exclusion = table(
    "test_exclusion",
    ExclusionRow,
    sa.Index("ix_test_exclusion_received_at", "received_at"),
    key=(*JOB_KEY, "object_id"),
)


class SummaryRow(TypedDict):
    """What a job of a trusted run or of a backend said of a suite."""

    generation: Big
    class_id: Big
    invoking_file: Text  # that launched it; empty: its own
    at: Millis
    tests: Int
    failures: Int
    errors: Int
    skipped: Int
    successes: Int
    flaky: Int
    time_ms: Big


test_summary = table(
    "test_summary",
    SummaryRow,
    sa.Index("ix_test_summary_class_id", "class_id", "at"),
    key=("generation", "class_id", "invoking_file"),
)


class FailureKey(TypedDict):
    """What names a case of a job."""

    generation: Big
    test_id: Big
    invoking_file: Text


class FailureOutcome(TypedDict):
    """How a case ended."""

    outcome: Annotated[
        int, sa.SmallInteger()
    ]  # see bot.ci.test_results.parse.block; a flaky one that passed: PASSED
    flaky: Bool  # some attempt passed and another one failed


class FailureAttempts(TypedDict):
    """How often a case was tried, and what it said."""

    attempts: Int
    failed_attempts: Int
    time_ms: Big | None
    type: Text
    message: Text


class FailureStack(TypedDict):
    """Where a case failed, by its own words."""

    stack: Text


class _FailureOutput(TypedDict):
    output: Text


class FailureSource(TypedDict):
    """Where in the source a case failed: see bot.ci.test_results.source_lines."""

    source_file: Text | None
    line: Int | None
    signature: Text | None  # the same for failures that say the same


class FailureVerdict(TypedDict):
    """Whose failure it is: see bot.ci.test_results.verdict."""

    verdict: Text | None  # None: not judged yet
    evidence: (
        Json[dict[str, Any]] | None
    )  # commits that prove it; across: see bot.ci.test_results.across_devices


class FailureProperties(TypedDict):
    """Properties of the failed attempt, as those of a job."""

    properties: Json[dict[str, str]] | None


class FailureHead(TypedDict):
    """Where a case failed."""

    repository_id: Big
    head_sha: Text  # the commit that was tested: of upstream where a backend tests it


class FailureTrust(TypedDict):
    """Whether a trusted job failed."""

    trusted: Bool


class FailureTime(TypedDict):
    """When a job began."""

    at: Millis


class FailureRow(
    FailureKey, FailureOutcome, FailureAttempts, FailureStack, _FailureOutput, FailureSource, FailureVerdict,
    FailureProperties, FailureHead, FailureTrust, FailureTime,
):  # fmt: skip
    """A case of a job that failed, or was flaky."""


test_failure = table(
    "test_failure",
    FailureRow,
    sa.Index("ix_test_failure_test_id", "test_id", "at"),
    sa.Index("ix_test_failure_signature", "signature", "at"),
    sa.Index("ix_test_failure_head_sha", "head_sha"),
    sa.Index("ix_test_failure_at", "repository_id", "at"),
    key=("generation", "test_id", "invoking_file"),
)


class DayRow(TypedDict):
    """What trusted runs of a day said of tests, of 4,096 with neighbouring ids together."""

    repository_id: Big
    page: Big  # of the ids
    day: Int  # since 1970, UTC
    counts: Bytes  # see bot.ci.test_results.day_counts


test_day = table("test_day", DayRow, sa.Index("ix_test_day_day", "day"), key=("repository_id", "page", "day"))


class LossRow(TypedDict):
    """What a complete run has less of than the trusted run before it."""

    repository_id: Big
    run_id: Big
    family: Text
    class_id: Big  # 0: the jobs as a whole
    kind: Text  # see bot.ci.test_results.losses
    backend: Text | None
    head_sha: Text  # that was tested: of upstream where a backend tests it
    base_sha: Text
    tests_before: Int
    tests: Int
    skipped_before: Int
    skipped: Int
    gone: Int
    examples: Json[list[int]]  # ids of tests that are gone
    at: Millis


test_loss = table(
    "test_loss",
    LossRow,
    sa.Index("ix_test_loss_at", "repository_id", "at"),
    sa.Index("ix_test_loss_head_sha", "head_sha"),
    key=("repository_id", "run_id", "family", "class_id", "kind"),
)


class StateRow(TypedDict):
    """The state of a test that is not simply healthy, in a group of environments."""

    repository_id: Big
    test_id: Big
    env_group: Text
    state: Text  # healthy | flaky | broken | quarantined
    since: Millis
    evidence: Json[dict[str, Any]]
    issue: Text | None
    by: Text  # bot, or the login of the person who reset it
    at: Millis  # of the evidence


test_state = table(
    "test_state",
    StateRow,
    sa.Index("ix_test_state_state", "repository_id", "state", "since"),
    key=("repository_id", "test_id", "env_group"),
)


class QuotaRow(TypedDict):
    """What runs that are not trusted stored of a repository's tests on a day."""

    repository_id: Big
    day: Int  # since 1970, UTC
    stored: Int  # rows
    bytes: Big


test_quota = table("test_quota", QuotaRow, key=("repository_id", "day"))
