"""Tables of test results: jobs with their blocks, tests, environments, parts, failures, daily sums, states."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Bytes, Default, Int, Json, Millis, Text, partial_index, table
from bot.evidence.collect.receivers import ReportedJob

JOB_KEY = ("repository_id", "run_id", "run_attempt", "job_id")


class _JobOwner(TypedDict):
    repository_id: Big


class JobRun(TypedDict):
    """The run of a job."""

    run_id: Big  # below 0: of another CI
    run_attempt: Int
    job_id: Big  # below 0: no job of GitHub's, but the artifact, or the other CI's job, of a name


class JobKeyRow(_JobOwner, JobRun):
    """What names a job."""


class JobGeneration(TypedDict):
    """Which rows of a job are shown."""

    generation: Big


class _JobHead(TypedDict):
    head_sha: Text  # of the repository itself


class JobUpstream(TypedDict):
    """What of upstream a job tested; its own runs: `head_sha`."""

    upstream_sha: Text | None
    upstream_repo: Text | None


class _JobDispatch(TypedDict):
    backend: Text | None
    dispatch_id: Text | None


class JobBranch(TypedDict):
    """What a job's run is of."""

    head_branch: Text | None
    event: Text | None


class _JobTrust(TypedDict):
    trusted: Bool  # may feed baselines, lists and states of its own repository


class JobPull(TypedDict):
    """The pull request that a job tested."""

    pr_number: Big | None


class JobSubject(_JobHead, JobUpstream, _JobDispatch, JobBranch, _JobTrust, JobPull):
    """What a job tested, by GitHub's word and our own dispatches."""


class _JobNames(TypedDict):
    env_id: Big
    workflow: Text
    name: Text
    family: Text  # the name without shard and runner, presumed: see bot.jobs.job_names
    base_name: Text
    config: Text
    shard: Int | None
    shards: Int | None
    rerun_disabled: Bool  # runs disabled tests over and over: counted nowhere else


class JobCounts(TypedDict):
    """Cases by how they ended; a flaky one is counted by its outcome, too."""

    tests: Int
    passed: Int
    failed: Int
    errors: Int
    skipped: Int
    xfailed: Int
    xpassed: Int
    flaky: Int


class _JobSums(TypedDict):
    crashed: Int  # files that gave no report
    left_out: Int  # failures without a row: there are too many
    time_ms: Big
    files: Int  # reports that were read
    # only what the job said while it ran is known: in no statistics, and replaced once it has left all of it
    partial: Annotated[Bool, Default(sa.false())]


class JobReport(TypedDict):
    """What its run report says of a job, as texts by name: see bot.evidence.tests.parse.texts."""

    flags: Json[dict[str, str]] | None
    properties: Json[dict[str, str]] | None


class Unreadable(TypedDict):
    """Reports that could not be read."""

    unreadable: Json[list[dict[str, str]]]  # [{member, reason}]
    # the same of files that are no reports, and of what was done to read others
    notes: Json[list[dict[str, str]]] | None


class JobTimes(TypedDict):
    """When a job began, by GitHub's word, when its newest part was received, and what the daily sums hold."""

    at: Millis
    received_at: Millis
    counted: Big  # the generation that the daily sums hold; 0: none


class JobCounted(TypedDict):
    """Where the daily sums hold a job."""

    counted_day: Int | None  # in days since 1970
    counted_group: Text | None  # and for which group of environments
    counted_block: Bytes | None  # of that generation, where it is no longer the one shown


class JobBlock(TypedDict):
    """The cases of a job: see bot.evidence.tests.parse.block."""

    block: Bytes | None


class TestJobRow(
    JobKeyRow, JobGeneration, JobSubject, _JobNames, JobCounts, _JobSums, Unreadable, JobTimes,
):  # fmt: skip
    """What a job's reports said, without what is large."""


class StoredJobRow(
    JobKeyRow, JobGeneration, JobSubject, _JobNames, JobCounts, _JobSums, JobReport, Unreadable, JobTimes,
    JobCounted, JobBlock,
):  # fmt: skip
    """What a job's reports said."""


test_job = table(
    "test_job",
    StoredJobRow,
    sa.Index("ix_test_job_generation", "generation", unique=True),
    sa.Index("ix_test_job_head_sha", "repository_id", "head_sha"),
    sa.Index("ix_test_job_upstream_sha", "upstream_sha"),
    sa.Index("ix_test_job_at", "at"),
    key=JOB_KEY,
)
BASELINE = sa.and_(test_job.c.trusted, sa.not_(test_job.c.rerun_disabled))
# the daily sums do not hold what they should; literals, for SQLite to use the index
UNCOUNTED = sa.or_(
    sa.and_(BASELINE, test_job.c.counted != test_job.c.generation),
    sa.and_(sa.not_(BASELINE), test_job.c.counted != sa.literal_column("0")),
)
partial_index(
    "ix_test_job_family",
    test_job.c.repository_id,
    test_job.c.family,
    test_job.c.at,
    where=BASELINE,
)
partial_index("ix_test_job_uncounted", test_job.c.repository_id, test_job.c.at, where=UNCOUNTED)


class _Owned(TypedDict):
    id: Big  # in blocks only; pages name a test by its digest
    repository_id: Big


class SuitePlace(TypedDict):
    """The file and the suite a test stands in."""

    file: Text
    suite: Text


class SuiteRow(_Owned, SuitePlace):
    """A suite in a file."""

    last_at: Millis  # the beginning of the day (UTC) on which it was last seen


test_class = table(
    "test_class",
    SuiteRow,
    sa.UniqueConstraint("repository_id", "file", "suite", name="uq_test_class"),
    key=("id",),
)


class TestDigest(TypedDict):
    """What identifies a test in its repository: see bot.evidence.tests.parse.texts."""

    digest: Bytes


class TestCanonical(TypedDict):
    """What is the same for the same test on every device."""

    canonical: Big


class TestName(TypedDict):
    """What a test is called in its suite."""

    name: Text


class _Suite(TypedDict):
    class_id: Big


class KnownTestRow(_Owned, _Suite, TestDigest, TestCanonical, TestName):
    """A test, and when it was seen; the last times are beginnings of days (UTC)."""

    declared_name: Text | None  # in the source, before a device or type was added
    language: Text | None
    first_at: Millis
    last_at: Millis
    trusted_first_at: Millis | None  # the same two, of trusted runs alone
    trusted_last_at: Millis | None


class NamedTestRow(SuitePlace, TestDigest, TestName):
    """What a test is shown by."""


class TestRow(KnownTestRow, SuitePlace):
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


class _PartNames(TypedDict):
    object_id: Big  # as that of ci_fetch
    kind: Text
    name: Text  # of the artifact, or of the upload's job
    blob: Text | None  # None: no longer kept


class PartRow(JobKeyRow, _PartNames, Unreadable):
    """An artifact or upload of a job, whose results are built from all of them."""

    received_at: Millis
    # by which its reports were read: see bot.evidence.tests.parse.block
    rules: Annotated[Int, Default("0")]
    # its job, as another CI tells of it; None: GitHub, or a backend, has a record
    told: Json[ReportedJob] | None


test_part = table(
    "test_part",
    PartRow,
    sa.Index("ix_test_part_object", "repository_id", "object_id"),
    sa.Index("ix_test_part_received_at", "received_at"),
    key=(*JOB_KEY, "object_id"),
)


class ExclusionRow(JobKeyRow):
    """Test files that a job left out on purpose, as one artifact says."""

    object_id: Big  # as that of ci_fetch
    files: Json[list[str]]  # without `.py`
    received_at: Millis


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

    # see bot.evidence.tests.parse.block; a flaky one that passed: PASSED
    outcome: Annotated[int, sa.SmallInteger()]
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
    """Where in the source a case failed: see bot.evidence.tests.job_results."""

    source_file: Text | None
    line: Int | None
    signature: Text | None  # the same for failures that say the same


class FailureVerdict(TypedDict):
    """Whose failure it is: see bot.evidence.tests.verdict."""

    verdict: Text | None  # None: not judged yet
    evidence: Json[dict[str, Any]] | None  # commits that prove it; across: see bot.evidence.tests.verdict


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
    counts: Bytes  # see bot.evidence.tests.days


test_day = table("test_day", DayRow, sa.Index("ix_test_day_day", "day"), key=("repository_id", "page", "day"))


class LossRow(TypedDict):
    """What a complete run has less of than the trusted run before it."""

    repository_id: Big
    run_id: Big
    family: Text
    class_id: Big  # 0: the jobs as a whole
    kind: Text  # see bot.evidence.tests.losses
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
