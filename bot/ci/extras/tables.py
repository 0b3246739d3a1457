"""The table of files that jobs left for the extras: what each is of, by GitHub's word, and what was left out of it."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Int, Json, Millis, Text, table


class SourceKey(TypedDict):
    """Which file it is."""

    repository_id: Big
    object_id: Big  # GitHub's id of the artifact; below 0: of an upload


class OfRepository(TypedDict):
    """Whose days and standings rows are."""

    repository_id: Big


class SourceJob(TypedDict):
    """The job that left it."""

    run_id: Big  # below 0: of another CI, as the next
    run_attempt: Int
    job_id: Big  # below 0: of no job that is known
    seconds: Int | None  # that it took


class SourceNames(TypedDict):
    """What the job is called."""

    repo: Text
    workflow: Text
    job_name: Text
    base_name: Text  # what is built: the same for all shards and configurations
    config: Text


class SourceMeasured(TypedDict):
    """When, on which commit and how far to be trusted: what the rows of a file repeat of it."""

    day: Int  # since 1970, UTC, on which the job began
    at: Millis  # when it began
    trusted: Bool  # may feed baselines and daily sums
    head_sha: Text  # of the repository itself


class SourceSubject(TypedDict):
    """What the job tested, by GitHub's word and our own dispatches; nothing here is read from the file."""

    upstream_sha: Text | None  # what of upstream it tested; its own runs: head_sha
    upstream_repo: Text | None
    head_branch: Text | None
    pr_number: Big | None  # upstream's


class Problem(TypedDict):
    """Something that was left out."""

    member: str
    line: int
    reason: str


class SourceRead(TypedDict):
    """What came of reading it."""

    kind: Text
    artifact: Text  # its name
    sha256: Text
    records: Int
    problems: Json[list[Problem]]  # the first of them
    problem_count: Int
    received_at: Millis


class SourceRow(SourceKey, SourceJob, SourceNames, SourceMeasured, SourceSubject, SourceRead):
    """A file of small documents that a job left."""


SOURCE_KEY = ("repository_id", "object_id")
ci_source = table(
    "ci_source",
    SourceRow,
    sa.Index("ix_ci_source_run", "repository_id", "run_id"),
    sa.Index("ix_ci_source_head_sha", "head_sha"),
    sa.Index("ix_ci_source_upstream_sha", "upstream_sha"),
    sa.Index("ix_ci_source_received_at", "received_at"),
    key=SOURCE_KEY,
)
