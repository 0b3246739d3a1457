"""What the JSON of failures says."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from bot.ci.logs.parse.rules import KINDS
from bot.ci.logs.store.failure_rows import FailureRow
from bot.ci.logs.store.failure_spread import Beginning, Sample
from bot.ci.logs.tables import DayRow
from bot.web.answers import Answer, Time, one_of
from bot.web.row_answers import RowAnswer


class FailureRate(Struct, frozen=True, kw_only=True):
    """How often the jobs that fail that way do so, of runs that began and ended"""

    jobs: Annotated[int, Meta(description="runs that failed that way")]
    runs: Annotated[
        int,
        Meta(
            description="all runs of these jobs in the same days, on any commit and shard, as of up to a minute ago"
        ),
    ]


class Failure(
    RowAnswer, row=FailureRow, frozen=True, kw_only=True,
    only=("signature", "title", "rule", "kind", "first_at", "last_at", "jobs_total", "issue_url", "jobs", "prs",
          "trusted_jobs", "repos", "rate"),
):  # fmt: skip
    """A failure: jobs whose logs say the same, but for what differs from run to run."""

    kind: Annotated[str, one_of(KINDS)]
    issue_url: Annotated[str | None, Meta(description="of the issue about it, as the administrator tied it")]
    jobs: Annotated[int, Meta(description="in the window")]
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


class FailureDay(RowAnswer, row=DayRow, frozen=True, kw_only=True):
    """What a failure cost on a day."""

    day: Annotated[str, Meta(description="UTC", examples=["2026-01-31"])]


class FailureSample(
    RowAnswer, row=Sample, frozen=True, kw_only=True,
    only=("repo", "job_id", "name", "workflow_name", "head_sha", "line", "line_num", "trusted", "at"),
):  # fmt: skip
    """A job that failed that way."""

    head_sha: str | None
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


class FailureBeginning(
    RowAnswer, row=Beginning, frozen=True, kw_only=True,
    only=("repo", "job", "upstream", "branch", "last_good", "first_bad"),
):  # fmt: skip
    """Between which two trusted commits a job began to fail that way."""

    repo: Annotated[str, Meta(description="of the job")]
    upstream: Annotated[str, Meta(description="of the commits")]


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
