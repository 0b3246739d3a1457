"""Tables of jobs: columns, cells, commits of branches, sums by day, changes of state, the read budget."""

from __future__ import annotations

from typing import Annotated, TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Bool, Bytes, Default, Float, Int, Json, Millis, Text, table


class ColumnKey(TypedDict):
    """The number of a column."""

    id: Big
    repository_id: Big


class ColumnName(TypedDict):
    """What a job's name says, without shard and runner."""

    workflow: Text
    job: Text
    base_name: Text
    config: Text
    flags: Text  # comma separated


class ColumnSource(TypedDict):
    """Who tells of its jobs."""

    source: Annotated[Text, Default("actions")]  # actions, status, or another CI: circleci, buildkite
    shown_as: Text | None  # the commit status under which GitHub shows what another CI ran, or its beginning


class ColumnSeen(TypedDict):
    """How old a column is."""

    seen: Annotated[Int, Default("0")]  # the day, since 1970, UTC, of its newest job


class ColumnRow(ColumnKey, ColumnName, ColumnSource, ColumnSeen):
    """A job, named without shard and runner."""


ci_column = table(
    "ci_column",
    ColumnRow,
    sa.UniqueConstraint("repository_id", "source", "workflow", "job", name="uq_ci_column"),
    key=("id",),
)


class CommitKey(TypedDict):
    """A commit that jobs ran on."""

    repository_id: Big
    head_sha: Text


class JobColumn(TypedDict):
    """The job of GitHub's, and the columns that it may be in."""

    column_id: Big
    job_id: Big
    numbered_column_id: Big | None  # the column it has where its numbers turn out to be no shard


class JobAttempt(TypedDict):
    """Which attempt of which run it is."""

    run_id: Big
    attempt: Int


class JobShard(TypedDict):
    """Which shard it is."""

    shard: Int  # 0: none
    shards: Int


class JobState(TypedDict):
    """How far it is, and how it ended."""

    state: Annotated[int, sa.SmallInteger()]  # see bot.jobs.cells, as the next one
    conclusion: Annotated[int, sa.SmallInteger()]


class JobTimes(TypedDict):
    """When it was created, and when it ran."""

    queued_at: Millis | None
    started_at: Millis | None
    completed_at: Millis | None


class JobRunner(TypedDict):
    """What it runs on."""

    runner_label: Text | None  # all that the job asks for: see bot.jobs.job_names


class FailureReport(TypedDict):
    """What is known of its failure."""

    signature: Text | None  # of the failure, where its log was read
    line: Text | None  # the line that says why it failed
    tests_failed: Int | None
    failed_tests: Text | None  # some of these: see bot.jobs.job_cells


class FailureKind(TypedDict):
    """What kind of failure it is."""

    failure_kind: Text | None  # what its log says: infra, test, ...; none: no rule says


class JobHold(TypedDict):
    """Whether it waited for more than a runner."""

    # for an approval: since when it waited for a runner is not known
    held: Annotated[Bool, Default(sa.false())]


class JobElsewhere(TypedDict):
    """Where it ran, if not on GitHub: its number in `job_id` is then made of its id, and negative."""

    other_id: Text | None
    url: Text | None


class Failure(FailureReport, FailureKind):
    """Why it failed."""


class CellRow(
    CommitKey,
    JobColumn,
    JobAttempt,
    JobShard,
    JobState,
    JobTimes,
    JobRunner,
    Failure,
    JobHold,
    JobElsewhere,
):
    """One job on a commit: the narrow copy of workflow_job, and of other CIs' jobs, that grids read."""


ci_cell = table(
    "ci_cell",
    CellRow,
    sa.Index("ix_ci_cell_job", "repository_id", "job_id"),
    sa.Index("ix_ci_cell_queued_at", "repository_id", "queued_at"),
    key=("repository_id", "head_sha", "column_id", "job_id"),
)


class StoredCommitRow(TypedDict):
    """A commit that jobs ran on, with its cells, which are kept until one of its jobs changes."""

    repository_id: Big
    head_sha: Text
    mark: Big  # random, replaced each time a job or run of the commit changes
    cells: Bytes | None  # see bot.jobs.commit_cells, as for the next; null: to be made again
    outline: Bytes | None


ci_commit = table("ci_commit", StoredCommitRow, key=("repository_id", "head_sha"))


class BranchKey(TypedDict):
    """A branch."""

    repository_id: Big
    branch: Text


class CommitRow(BranchKey):
    """A line of the grid: the head of a push, or a commit that GitHub lists."""

    sha: Text
    parent: Text | None  # the line before: the head before the push, or the first parent
    replaces: Text | None  # the head that a forced push took from the branch
    at: Millis
    title: Text
    author: Text | None
    pr_number: Big | None
    folded: Int  # further commits that came with it
    gone: Bool  # no longer on the branch
    listed: Annotated[Bool, Default(sa.false())]  # GitHub's list told of it, no push has


branch_commit = table(
    "branch_commit",
    CommitRow,
    sa.Index("ix_branch_commit_at", "repository_id", "branch", "at", "sha"),
    sa.Index("ix_branch_commit_sha", "sha", "repository_id"),
    key=("repository_id", "branch", "sha"),
)


class ListedCommit(TypedDict):
    """A commit as GitHub lists it."""

    sha: Text
    at: Millis
    title: Text
    author: Text | None


class FoldedCommitRow(BranchKey, ListedCommit):
    """A commit that came with the push of another one, as GitHub lists it."""


folded_commit = table("folded_commit", FoldedCommitRow, key=("repository_id", "branch", "sha"))


class Day(TypedDict):
    """The day of the commits."""

    day: Int  # since 1970, UTC


class ColumnCells(TypedDict):
    """What a column showed on the commits of a day."""

    name: Text  # of the column
    workflow: Text
    cells: Text  # a character for each commit, oldest first; a space where it has none
    seconds: Big  # that its runs took


class ColumnDayRow(BranchKey, Day, ColumnCells):
    """What a column showed on the commits of one day of a branch."""


ci_day = table("ci_day", ColumnDayRow, key=("repository_id", "branch", "day", "name"))


class LinePlace(TypedDict):
    """Where a commit stands."""

    place: Int  # among the commits of the day, the oldest is 0


class LineSums(TypedDict):
    """How a commit fared."""

    sha: Text
    verdict: Text
    red_seconds: Big | None  # from the first job's creation to the first blocking failure
    signal_seconds: Big | None  # to the end of the last blocking job
    jobs: Int
    reruns: Int
    flaky: Int
    cancelled_seconds: Big
    seconds: Json[dict[str, int]]  # of all runs, by runner label
    # runs by the kind of their failure, see bot.jobs.daily_sums; null: not counted then
    failures: Json[dict[str, int]] | None


class LineRow(BranchKey, Day, LinePlace, LineSums):
    """A commit of a branch, and how its jobs left it."""


ci_line = table("ci_line", LineRow, key=("repository_id", "branch", "day", "place"))


class RunnerLabel(TypedDict):
    """A runner label."""

    repository_id: Big
    label: Text


class RunnerCounts(TypedDict):
    """Jobs of a runner label."""

    jobs: Int
    queue: Bytes  # see bot.oot.statistics.histogram, as the next one
    duration: Bytes


class RunnerDayRow(RunnerLabel, Day, RunnerCounts):
    """Jobs of all branches and pull requests by runner label and day of creation."""


ci_runner_day = table("ci_runner_day", RunnerDayRow, key=("repository_id", "label", "day"))


class ColumnEvent(TypedDict):
    """A change of a column's state."""

    name: Text  # of the column
    first_bad: Text
    state_after: Text
    state_before: Text
    last_good: Text | None
    signature: Text | None
    at: Millis | None  # when the job that decided it ended


class EventRow(BranchKey, ColumnEvent):
    """A change of a column's state on a branch."""


trunk_event = table(
    "trunk_event",
    EventRow,
    sa.Index("ix_trunk_event_at", "repository_id", "branch", "at"),
    key=("repository_id", "branch", "name", "first_bad", "state_after"),
)


class BrokenCountRow(BranchKey):
    """How many columns of a group are broken, as last counted."""

    column_group: Text
    broken: Int


ci_broken = table("ci_broken", BrokenCountRow, key=("repository_id", "branch", "column_group"))


class UnstableJobRow(TypedDict):
    """A job that an open issue calls unstable."""

    repository_id: Big
    name: Text  # as an issue has it


ci_unstable = table("ci_unstable", UnstableJobRow, key=("repository_id", "name"))


class BranchRuleRow(BranchKey):
    """The checks that GitHub requires on a branch."""

    contexts: Json[list[str]] | None  # their names; null: GitHub has never said
    asked_at: Millis


branch_rule = table("branch_rule", BranchRuleRow, key=("repository_id", "branch"))


class BranchRow(BranchKey):
    """Whether a branch was deleted: the later of its two times decides."""

    pushed_at: Millis  # when the last push to it was received, 0: none was
    deleted_at: Millis  # when its deletion was received, 0: it was not


trunk_branch = table("trunk_branch", BranchRow, key=("repository_id", "branch"))


class BudgetRow(TypedDict):
    """What an account's installation has spent on collecting."""

    account: Text  # case folded
    calls: Float  # that may be made now
    bytes: Float  # that may be downloaded now; below zero after a large file
    at: Millis  # when these two were computed
    minutes: Json[dict[str, list[float]]]  # of the last hour: minute -> [calls, bytes]


ci_budget = table("ci_budget", BudgetRow, key=("account",))
