"""The table of jobs with test results: what each tested, its counts, and all of its cases in one block."""

from __future__ import annotations

from typing import Annotated, TypedDict

import sqlalchemy as sa

from bot.db.columns import partial_index
from bot.db.rows import Big, Bool, Bytes, Default, Int, Json, Millis, Text, table

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
    family: Text  # the name without shard and runner, presumed: see bot.ci.collect.job_names
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


class JobPartial(TypedDict):
    """Whether that is all."""

    # only what the job said while it ran is known: in no statistics, and replaced once it has left all of it
    partial: Annotated[Bool, Default(sa.false())]


class JobReport(TypedDict):
    """What its run report says of a job, as texts by name: see bot.ci.test_results.parse.properties."""

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
    """The cases of a job: see bot.ci.test_results.parse.block."""

    block: Bytes | None


class TestJobRow(
    JobKeyRow, JobGeneration, JobSubject, _JobNames, JobCounts, _JobSums, JobPartial, Unreadable, JobTimes,
):  # fmt: skip
    """What a job's reports said, without what is large."""


class StoredJobRow(
    JobKeyRow, JobGeneration, JobSubject, _JobNames, JobCounts, _JobSums, JobPartial, JobReport, Unreadable, JobTimes,
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
UNCOUNTED = sa.or_(  # the daily sums do not hold what they should; literals, for SQLite to use the index
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
