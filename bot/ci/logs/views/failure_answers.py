"""What the JSON of failures says."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from bot.ci.logs.parse.rules import KINDS
from bot.web.answers import Answer, Time, one_of


class FailureRate(Struct, frozen=True, kw_only=True):
    """How often the jobs that fail that way do so, of runs that began and ended"""

    jobs: Annotated[int, Meta(description="runs that failed that way")]
    runs: Annotated[
        int,
        Meta(
            description="all runs of these jobs in the same days, on any commit and shard, as of up to a minute ago"
        ),
    ]


class Failure(Struct, frozen=True, kw_only=True):
    """A failure: jobs whose logs say the same, but for what differs from run to run."""

    signature: str
    title: str
    rule: str
    kind: Annotated[str, one_of(KINDS)]
    first_at: Time
    last_at: Time
    jobs_total: int
    issue_url: Annotated[str | None, Meta(description="of the issue about it, as the administrator tied it")]
    jobs: Annotated[int, Meta(description="in the window")]
    prs: int
    trusted_jobs: Annotated[int, Meta(description="of the repositories' own runs on trusted branches")]
    repos: Annotated[int, Meta(description="the most on one day")]
    rate: Annotated[
        FailureRate | None, Meta(description="null: no runs of these jobs are recorded, as of other CIs")
    ]


class FailureOfDays(Failure, frozen=True, kw_only=True):
    """A failure, and the jobs it cost day by day."""

    jobs_by_day: Annotated[list[int], Meta(description="each day of the window, the oldest first, in UTC")]


class Failures(Answer, frozen=True, kw_only=True):
    """Failures of public repositories by the jobs they cost"""

    days: int
    rate_days: Annotated[int, Meta(description="the window of each `rate`: at most 30")]
    classified_jobs: Annotated[int, Meta(description="failed jobs with a verdict, in the window")]
    named_jobs: Annotated[int, Meta(description="of these: those with a verdict that is not generic or none")]
    failures: list[FailureOfDays]


class FailureDay(Struct, frozen=True, kw_only=True):
    """What a failure cost on a day."""

    day: Annotated[str, Meta(description="UTC", examples=["2026-01-31"])]
    jobs: int
    prs: int
    trusted_jobs: int
    repos: int


class FailureSample(Struct, frozen=True, kw_only=True):
    """A job that failed that way."""

    repo: str
    job_id: int
    name: str | None
    workflow_name: str | None
    head_sha: str | None
    line: str | None
    line_num: int | None
    trusted: bool
    at: Time


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Jobs that failed that way and have something in common."""

    name: str
    jobs: int
    trusted_jobs: int


class FailureJobRate(Struct, frozen=True, kw_only=True):
    """How often one job fails that way, of its runs of the last 30 days"""

    repo: str
    job: Annotated[str, Meta(description="without shard and runner")]
    jobs: int
    runs: int


class FailureBeginning(Struct, frozen=True, kw_only=True):
    """Between which two trusted commits a job began to fail that way."""

    repo: Annotated[str, Meta(description="of the job")]
    job: str
    upstream: Annotated[str, Meta(description="of the commits")]
    branch: str
    last_good: str
    first_bad: str


class FailureAnswer(Answer, frozen=True, kw_only=True):
    """A failure, day by day, where it happens and since when, and jobs that failed that way"""

    failure: Failure
    by_day: list[FailureDay]
    rates: Annotated[list[FailureJobRate], Meta(description="the jobs that it hits most")]
    began: list[FailureBeginning]
    by_job: Annotated[
        list[FailureGroup], Meta(description="the newest jobs by name, without shard and runner")
    ]
    by_label: Annotated[list[FailureGroup], Meta(description="the same by the labels of their runners")]
    by_repo: Annotated[list[FailureGroup], Meta(description="the same by repository: upstream and backends")]
    samples: list[FailureSample]
