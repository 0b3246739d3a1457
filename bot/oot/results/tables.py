"""Tables of dispatches, jobs, re-runs, runs, approvals, ignores and commands."""

from __future__ import annotations

from typing import Any, TypedDict

import sqlalchemy as sa

from bot.db.rows import Big, Float, Int, Json, Millis, Text, partial_index, table


class DispatchKey(TypedDict):
    """Our own key of it."""

    id: Text


class DispatchEvent(TypedDict):
    """What all dispatches of one event have in common."""

    delivery_id: Text  # what the backend knows it by
    source_guid: Text  # the stored delivery whose body is dispatched
    upstream_repo: Text
    event_type: Text
    action: Text | None  # of a pull request; closed also for a deleted ref: no answer is expected
    pr_number: Big | None
    head_sha: Text | None
    base_sha: Text | None
    base_ref: Text | None  # the branch a pull request is meant for: a push that is about none has none
    ref: Text | None  # what was pushed
    labels: Json[list[str]] | None


class DispatchBackend(TypedDict):
    """The backend it is sent to, as the allowlist had it."""

    backend: Text
    backend_key: Text  # the name, case folded
    level: Int
    device: Text | None


class DispatchState(TypedDict):
    """How far it has come, and when it was recorded."""

    # pending, held, waiting, skipped_*, sent, not_installed, failed, superseded, cancelled, never_started or not_run
    state: Text
    attempts: Int
    created_at: Millis


class DispatchTimes(TypedDict):
    """When it was sent and answered, and the token it was sent with."""

    dispatched_at: Millis | None
    heard_at: Millis | None  # when the first report on it came
    token_jti: Text


class DispatchAnswers(TypedDict):
    """Whether its backend has to answer."""

    answers: Text | None  # some: silence is no failure; null: all, a report is expected


class DispatchOutcome(TypedDict):
    """The run it started, or why it failed."""

    run_id: Text | None  # the run a workflow_dispatch started: reports have to be about it
    error: Text | None


class DispatchRow(
    DispatchKey,
    DispatchEvent,
    DispatchBackend,
    DispatchState,
    DispatchTimes,
    DispatchAnswers,
    DispatchOutcome,
):
    """One `repository_dispatch` of one delivery to one backend."""


class CountedDispatch(DispatchKey, DispatchBackend, DispatchState):
    """What says which days a dispatch counts for."""


oot_dispatch = table(
    "oot_dispatch",
    DispatchRow,
    sa.UniqueConstraint("delivery_id", "backend_key", name="ux_oot_dispatch"),
    key=("id",),
)
sa.Index("ix_oot_dispatch_pull", oot_dispatch.c.upstream_repo, oot_dispatch.c.pr_number)
sa.Index("ix_oot_dispatch_state", oot_dispatch.c.state, oot_dispatch.c.created_at)
UNREPORTED = oot_dispatch.c.heard_at.is_(None)
# literal in statements too: SQLite uses the partial index only for the same expression
AWAITED = sa.and_(  # L1 never reports, nor is a closing reported on
    UNREPORTED,
    oot_dispatch.c.level > sa.literal_column("1"),
    oot_dispatch.c.action.is_distinct_from(sa.literal_column("'closed'")),
)
_in_order = (oot_dispatch.c.state, oot_dispatch.c.created_at, oot_dispatch.c.id)
partial_index("ix_oot_dispatch_awaited", *_in_order, where=AWAITED)
ENDED_UNANSWERED = oot_dispatch.c.state.in_(
    [sa.literal_column(f"'{state}'") for state in ("failed", "never_started", "not_installed")]
)
_silent = (oot_dispatch.c.backend_key, oot_dispatch.c.created_at)
partial_index("ix_oot_dispatch_unanswered", *_silent, where=ENDED_UNANSWERED)
sa.Index("ix_oot_dispatch_head", oot_dispatch.c.head_sha)
sa.Index("ix_oot_dispatch_source", oot_dispatch.c.source_guid)


class ApprovalRow(TypedDict):
    """A head that backends with a policy may run."""

    upstream_repo: Text
    pr_number: Big
    head_sha: Text  # a later head needs it again
    login: Text
    created_at: Millis


oot_approval = table("oot_approval", ApprovalRow, key=("upstream_repo", "pr_number", "head_sha"))


class JobIdentity(TypedDict):
    """Which attempt of which job it is."""

    job_key: Text  # SHA-256 of the six identifying columns


class JobDispatch(TypedDict):
    """The dispatch that asked for it."""

    dispatch_id: Text | None


class JobKey(JobIdentity, JobDispatch):
    """Which attempt of which job it is, by our keys."""


class JobOutcome(TypedDict):
    """Whether it has ended, and how."""

    status: Text
    conclusion: Text | None


class JobSubject(TypedDict):
    """Whose job it is, and what it is about."""

    downstream_repo: Text
    upstream_repo: Text
    pr_number: Big | None
    head_sha: Text | None
    delivery_id: Text


class JobPage(TypedDict, total=False):
    """The page of its run."""

    workflow_run_url: Text | None


class JobName(TypedDict):
    """Its name."""

    workflow_name: Text
    job_name: Text


class JobCheckRun(TypedDict, total=False):
    """Its check run, which is also the job's id with GitHub."""

    check_run_id: Text | None


class JobReporter(TypedDict):
    """The check run of the job that reported it."""

    reporter_check_run_id: Text | None


class JobAttempt(TypedDict):
    """The attempt of its run."""

    run_id: Text
    run_attempt: Int


class JobRun(JobReporter, JobAttempt):
    """Its run."""


class JobDurations(TypedDict, total=False):
    """How long it waited and ran, seconds."""

    queue_time: Float | None
    execution_time: Float | None


class JobSpan(TypedDict, total=False):
    """When it began and ended, by our clock."""

    started_at: Millis | None
    completed_at: Millis | None


class JobTests(TypedDict, total=False):
    """The tests that ran in it."""

    total_tests: Big | None
    passed_tests: Big | None
    failed_tests: Big | None
    skipped_tests: Big | None
    failed_tests_json: Json[list[dict[str, Any]]] | None


class JobReportedSpan(TypedDict, total=False):
    """When it began and ended, according to its backend."""

    reported_started_at: Millis | None
    reported_completed_at: Millis | None


class JobDetails(JobReportedSpan, total=False):
    """What else was reported of it."""

    artifact_url: Text | None
    environment: Json[dict[str, str]] | None
    triage_verdict: Json[dict[str, Any]] | None


class JobOrigin(TypedDict):
    """Who reported it."""

    downstream_repo_level: Int
    event_type: Text
    source: Text  # callback | relay


class JobFlags(TypedDict):
    """What is unusual about it."""

    flags: Json[dict[str, Any]]  # late, no_start, url_dropped, ...


class JobTimes(TypedDict, total=False):
    """When it was first and last reported."""

    received_at: Millis
    updated_at: Millis


class JobRow(
    JobKey,
    JobOutcome,
    JobSubject,
    JobPage,
    JobName,
    JobCheckRun,
    JobRun,
    JobDurations,
    JobSpan,
    JobTests,
    JobDetails,
    JobOrigin,
    JobFlags,
    JobTimes,
):
    """What a backend reported on one job."""


class JobReported(JobPage, JobCheckRun, JobTests, JobDetails):
    """What the body of a report says of a job."""


class JobChange(JobOutcome, JobReported, JobSpan, JobDurations, JobFlags, JobTimes):
    """What a report changes of a job, not all of it each time."""


class CountedJob(JobKey, JobSubject, JobName, JobRun, JobTimes):
    """What says which days a job counts for."""


oot_workflow_job = table("oot_workflow_job", JobRow, key=("job_key",))
sa.Index("ix_oot_workflow_job_dispatch", oot_workflow_job.c.dispatch_id)
sa.Index("ix_oot_workflow_job_pull", oot_workflow_job.c.upstream_repo, oot_workflow_job.c.pr_number)
BY_BACKEND = (sa.func.lower(oot_workflow_job.c.downstream_repo), oot_workflow_job.c.received_at)
sa.Index("ix_oot_workflow_job_backend", *BY_BACKEND)
ATTEMPTS = ("run_id", "job_name", "workflow_name", "delivery_id", "run_attempt")  # of one job: a run has many
sa.Index("ix_oot_workflow_job_run", *(oot_workflow_job.c[name] for name in ATTEMPTS))
# unlike the other indexes: otherwise SQLite would scan all jobs of the backend for those of a commit
BACKEND_OF_HEAD: sa.ColumnElement[str] = sa.literal_column("lower(downstream_repo || '')", sa.Text)
sa.Index("ix_oot_workflow_job_head", oot_workflow_job.c.head_sha, BACKEND_OF_HEAD)
WITHOUT_COMMIT = oot_workflow_job.c.head_sha.is_(None)
partial_index("ix_oot_workflow_job_no_commit", oot_workflow_job.c.delivery_id, where=WITHOUT_COMMIT)
sa.Index(
    "ix_oot_workflow_job_name",  # history of one job
    sa.func.lower(oot_workflow_job.c.downstream_repo),
    oot_workflow_job.c.job_name,
    oot_workflow_job.c.workflow_name,
    oot_workflow_job.c.completed_at,
    oot_workflow_job.c.pr_number,
)
WITH_FAILED_TESTS = oot_workflow_job.c.failed_tests_json.is_not(None)
partial_index("ix_oot_workflow_job_failed", *BY_BACKEND, where=WITH_FAILED_TESTS)
UNFINISHED = oot_workflow_job.c.status == "in_progress"
partial_index("ix_oot_workflow_job_open", oot_workflow_job.c.started_at, where=UNFINISHED)


class RerunRow(TypedDict):
    """A run of a backend that is to be run again."""

    dispatch_id: Text
    run_id: Text
    from_attempt: Int
    scope: Text  # failed | all
    state: Text  # asked | sent | begun | impossible | never_started
    cause: Text
    created_at: Millis


oot_rerun = table("oot_rerun", RerunRow, key=("dispatch_id", "run_id", "from_attempt"))
RERUN_AWAITED = oot_rerun.c.state.in_([sa.literal_column("'asked'"), sa.literal_column("'sent'")])
partial_index("ix_oot_rerun_awaited", oot_rerun.c.created_at, where=RERUN_AWAITED)


class _RunState(TypedDict):
    backend_key: Text
    run_id: Text
    run_attempt: Int
    status: Text  # missing | unconfirmed | unreadable


class RunRow(_RunState):
    """What asking GitHub for one attempt of a backend's run found when there is no run to record."""

    checked_at: Millis


class RunStatusRow(_RunState):
    """What is known from GitHub about one attempt of a backend's run; its status is GitHub's, or as in RunRow."""

    conclusion: str | None
    event: str | None  # that started the run


oot_run = table("oot_run", RunRow, key=("backend_key", "run_id", "run_attempt"))


class IgnoreRow(TypedDict):
    """A backend that counts as passed on one head."""

    upstream_repo: Text
    pr_number: Big
    head_sha: Text  # a later head is not ignored
    base_ref: Text | None  # nor is this one on another base branch
    backend_key: Text
    login: Text
    reason: Text
    created_at: Millis


oot_ignore = table("oot_ignore", IgnoreRow, key=("upstream_repo", "pr_number", "head_sha", "backend_key"))
SELF_TRIGGERED = ("nightly", "periodic")  # event types of runs that were not dispatched


class CommandRow(TypedDict):
    """A command in a comment."""

    upstream_repo: Text
    comment_id: Big
    position: Int  # within the comment
    pr_number: Big
    head_sha: Text | None  # the pull request's when the command was carried out
    login: Text
    verb: Text  # empty when not understood
    text: Text  # the line as it was written
    state: Text  # seen | done | refused
    answer: Text  # a sentence or two for people
    delivery_id: Text
    created_at: Millis


oot_command = table("oot_command", CommandRow, key=("upstream_repo", "comment_id", "position"))
sa.Index("ix_oot_command_pull", oot_command.c.upstream_repo, oot_command.c.pr_number)
sa.Index("ix_oot_command_login", oot_command.c.login, oot_command.c.created_at)
