"""Tables of dispatches, jobs, re-runs, runs, approvals, ignores and commands."""

from __future__ import annotations

import sqlalchemy as sa

from bot.db.columns import Big, Float, Json, metadata, partial_index
from bot.db.columns import column as _column
from bot.db.columns import must as _must

oot_dispatch = sa.Table(
    "oot_dispatch",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _must("delivery_id", sa.Text),  # what the backend knows it by
    _must("source_guid", sa.Text),  # the stored delivery whose body is dispatched
    _must("upstream_repo", sa.Text),
    _must("event_type", sa.Text),
    _column("action", sa.Text),  # of a pull request; closed also for a deleted ref: nobody has to answer
    _column("pr_number", Big),
    _column("head_sha", sa.Text),
    _column("base_sha", sa.Text),
    _column("base_ref", sa.Text),  # the branch a pull request is meant for: a push has none
    _column("labels", Json),
    _must("backend", sa.Text),
    _must("backend_key", sa.Text),  # the name, case folded
    _must("level", sa.Integer),
    _column("device", sa.Text),
    # pending | held (by policy) | sent | not_installed | failed | superseded | cancelled | never_started | not_run
    _must("state", sa.Text),
    _must("attempts", sa.Integer),
    _must("created_at", Big),
    _column("dispatched_at", Big),
    _column("heard_at", Big),  # when the first report on it came
    _must("token_jti", sa.Text),
    _column("answers", sa.Text),  # some: silence is no failure; null: all, a report is expected
    _column("run_id", sa.Text),  # the run a workflow_dispatch started: reports have to be about it
    _column("error", sa.Text),
    sa.UniqueConstraint("delivery_id", "backend_key", name="ux_oot_dispatch"),
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


oot_approval = sa.Table(
    "oot_approval",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("pr_number", Big),
    _must("head_sha", sa.Text),  # a later head needs it again
    _must("login", sa.Text),
    _must("created_at", Big),
    sa.PrimaryKeyConstraint("upstream_repo", "pr_number", "head_sha", name="pk_oot_approval"),
)


oot_workflow_job = sa.Table(
    "oot_workflow_job",
    metadata,
    sa.Column("job_key", sa.Text, primary_key=True),  # SHA-256 of the six identifying columns
    _column("dispatch_id", sa.Text),
    _must("status", sa.Text),
    _column("conclusion", sa.Text),
    _must("downstream_repo", sa.Text),
    _must("upstream_repo", sa.Text),
    _column("pr_number", Big),
    _column("head_sha", sa.Text),
    _must("delivery_id", sa.Text),
    _column("workflow_run_url", sa.Text),
    _must("workflow_name", sa.Text),
    _must("job_name", sa.Text),
    _column("check_run_id", sa.Text),
    _column("reporter_check_run_id", sa.Text),
    _must("run_id", sa.Text),
    _must("run_attempt", sa.Integer),
    _column("queue_time", Float),
    _column("execution_time", Float),
    _column("started_at", Big),
    _column("completed_at", Big),
    _column("total_tests", Big),
    _column("passed_tests", Big),
    _column("failed_tests", Big),
    _column("skipped_tests", Big),
    _column("failed_tests_json", Json),
    _column("artifact_url", sa.Text),
    _column("environment", Json),
    _column("reported_started_at", Big),
    _column("reported_completed_at", Big),
    _column("triage_verdict", Json),
    _must("downstream_repo_level", sa.Integer),
    _must("event_type", sa.Text),
    _must("source", sa.Text),  # callback | relay
    _must("flags", Json),  # late, no_start, url_dropped, ...
    _must("received_at", Big),
    _must("updated_at", Big),
)


sa.Index("ix_oot_workflow_job_dispatch", oot_workflow_job.c.dispatch_id)


sa.Index("ix_oot_workflow_job_pull", oot_workflow_job.c.upstream_repo, oot_workflow_job.c.pr_number)


sa.Index(
    "ix_oot_workflow_job_backend",
    sa.func.lower(oot_workflow_job.c.downstream_repo),
    oot_workflow_job.c.received_at,
)


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


sa.Index(
    "ix_oot_workflow_job_failed",
    sa.func.lower(oot_workflow_job.c.downstream_repo),
    oot_workflow_job.c.received_at,
    sqlite_where=WITH_FAILED_TESTS,
    postgresql_where=WITH_FAILED_TESTS,
)


UNFINISHED = oot_workflow_job.c.status == "in_progress"


partial_index("ix_oot_workflow_job_open", oot_workflow_job.c.started_at, where=UNFINISHED)


oot_rerun = sa.Table(
    "oot_rerun",
    metadata,
    _must("dispatch_id", sa.Text),
    _must("run_id", sa.Text),
    _must("from_attempt", sa.Integer),
    _must("scope", sa.Text),  # failed | all
    _must("state", sa.Text),  # asked | sent | begun | impossible | never_started
    _must("cause", sa.Text),
    _must("created_at", Big),
    sa.PrimaryKeyConstraint("dispatch_id", "run_id", "from_attempt", name="pk_oot_rerun"),
)


RERUN_AWAITED = oot_rerun.c.state.in_([sa.literal_column("'asked'"), sa.literal_column("'sent'")])


partial_index("ix_oot_rerun_awaited", oot_rerun.c.created_at, where=RERUN_AWAITED)


oot_run = sa.Table(
    "oot_run",
    metadata,
    _must("backend_key", sa.Text),
    _must("run_id", sa.Text),
    _must("run_attempt", sa.Integer),
    _must("status", sa.Text),  # missing | unconfirmed | unreadable
    _must("checked_at", Big),
    sa.PrimaryKeyConstraint("backend_key", "run_id", "run_attempt", name="pk_oot_run"),
)


oot_ignore = sa.Table(
    "oot_ignore",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("pr_number", Big),
    _must("head_sha", sa.Text),  # a later head is not ignored
    _column("base_ref", sa.Text),  # nor is this one on another base branch
    _must("backend_key", sa.Text),
    _must("login", sa.Text),
    _must("reason", sa.Text),
    _must("created_at", Big),
    sa.PrimaryKeyConstraint("upstream_repo", "pr_number", "head_sha", "backend_key", name="pk_oot_ignore"),
)


SELF_TRIGGERED = ("nightly", "periodic")  # event types of runs that nobody dispatched

oot_command = sa.Table(
    "oot_command",
    metadata,
    _must("upstream_repo", sa.Text),
    _must("comment_id", Big),
    _must("position", sa.Integer),  # within the comment
    _must("pr_number", Big),
    _column("head_sha", sa.Text),  # the pull request's when the command was carried out
    _must("login", sa.Text),
    _must("verb", sa.Text),  # empty when not understood
    _must("text", sa.Text),  # the line as it was written
    _must("state", sa.Text),  # seen | done | refused
    _must("answer", sa.Text),  # a sentence or two for people
    _must("delivery_id", sa.Text),
    _must("created_at", Big),
    sa.PrimaryKeyConstraint("upstream_repo", "comment_id", "position", name="pk_oot_command"),
)


sa.Index("ix_oot_command_pull", oot_command.c.upstream_repo, oot_command.c.pr_number)


sa.Index("ix_oot_command_login", oot_command.c.login, oot_command.c.created_at)
