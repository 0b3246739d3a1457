"""What is stored? Every table, once, for SQLite and PostgreSQL alike.

Times are epoch milliseconds in integers; ids of outside CIs are text; the tables of records are in `record_tables`.
"""

from __future__ import annotations

import sqlalchemy as sa

from bot.store.columns import Big, Float, Json, metadata, partial_index
from bot.store.columns import column as _column
from bot.store.columns import must as _must
from bot.store.installation_tables import oot_budget, schema_support
from bot.store.pull_tables import oot_check, oot_comment
from bot.store.record_tables import records
from bot.store.rollup_tables import oot_day, oot_level, oot_stale_day
from bot.store.sweep_tables import missed_delivery, sweep

__all__ = [
    "metadata",
    "missed_delivery",
    "oot_budget",
    "oot_check",
    "oot_comment",
    "oot_day",
    "oot_level",
    "oot_stale_day",
    "records",
    "schema_support",
    "sweep",
]  # part of the schema, made elsewhere

delivery = sa.Table(
    "delivery",
    metadata,
    sa.Column("id", Big, primary_key=True),
    _must("guid", sa.Text, unique=True),
    _must("event", sa.Text),
    _column("action", sa.Text),
    _column("repo", sa.Text),
    _column("repository_id", Big),
    _column("installation_id", Big),  # recorded, never used for access
    _column("app_id", Big),  # X-GitHub-Hook-Installation-Target-ID
    _must("source", sa.Text),  # webhook | api | pull
    _must("received_at", Big),
    _must("state", sa.Text),  # stored | handled | ignored | foreign | parked
    _must("attempts", sa.Integer, server_default="0"),
    _must("due_at", Big),
    _column("error", sa.Text),
    _column("headers", sa.Text),  # JSON of those that matter; never a signature
    _column("codec", sa.Text),  # zlib; null: the body is as it came
    _must("body", sa.LargeBinary),
)
partial_index("ix_delivery_pending", delivery.c.due_at, where=delivery.c.state == "stored")
sa.Index("ix_delivery_received_at", delivery.c.received_at)
partial_index("ix_delivery_parked", delivery.c.id, where=delivery.c.state == "parked")

task = sa.Table(
    "task",
    metadata,
    sa.Column("id", Big, primary_key=True),
    _must("kind", sa.Text),
    _must("key", sa.Text),
    _must("state", sa.Text),  # waiting | running | done | dead
    _must("created_at", Big),  # when the first of the merged requests came
    _must("due_at", Big),
    _must("attempts", sa.Integer),
    _column("owner", sa.Text),
    _column("lease_until", Big),
    _column("finished_at", Big),
    _column("error", sa.Text),
    _column("cause", sa.Text),  # the delivery or request that asked for it first
)
WAITING, RUNNING = task.c.state == "waiting", task.c.state == "running"
partial_index("ux_task_waiting", task.c.kind, task.c.key, where=WAITING, unique=True)
partial_index("ux_task_running", task.c.kind, task.c.key, where=RUNNING, unique=True)
partial_index("ix_task_due", task.c.due_at, where=WAITING)
partial_index("ix_task_dead", task.c.kind, task.c.key, where=task.c.state == "dead")
sa.Index("ix_task_state", task.c.state, task.c.id)

secret = sa.Table(
    "secret",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    _must("value", sa.LargeBinary),
)

allowlist_version = sa.Table(
    "allowlist_version",
    metadata,
    sa.Column("id", Big, primary_key=True),
    _must("digest", sa.Text),
    _must("source", sa.Text),
    _must("content", sa.Text),
    _must("valid", sa.Boolean),
    _column("error", sa.Text),
    _must("loaded_at", Big),
)

oot_dispatch = sa.Table(
    "oot_dispatch",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _must("delivery_id", sa.Text),  # what the backend knows it by
    _must("source_guid", sa.Text),  # the stored delivery whose body is relayed
    _must("upstream_repo", sa.Text),
    _must("event_type", sa.Text),
    _column("action", sa.Text),
    _column("pr_number", Big),
    _column("head_sha", sa.Text),
    _column("base_sha", sa.Text),
    _column("base_ref", sa.Text),  # the branch a pull request is meant for: a push has none
    _column("labels", Json),
    _must("backend", sa.Text),
    _must("backend_key", sa.Text),  # the name, case folded
    _must("level", sa.Integer),
    _column("device", sa.Text),
    # pending | held (by policy) | sent | not_installed | failed | superseded | never_started
    _must("state", sa.Text),
    _must("attempts", sa.Integer),
    _must("created_at", Big),
    _column("dispatched_at", Big),
    _column("heard_at", Big),  # when the first report on it came
    _must("token_jti", sa.Text),
    _column("run_id", sa.Text),  # the run a workflow_dispatch started: reports have to be about it
    _column("error", sa.Text),
    sa.UniqueConstraint("delivery_id", "backend_key", name="ux_oot_dispatch"),
)
sa.Index("ix_oot_dispatch_pull", oot_dispatch.c.upstream_repo, oot_dispatch.c.pr_number)
sa.Index("ix_oot_dispatch_state", oot_dispatch.c.state, oot_dispatch.c.created_at)
UNHEARD = oot_dispatch.c.heard_at.is_(None)
# written out in statements too: only so does SQLite see that an index is about the same
AWAITED = sa.and_(  # L1 never reports, and nobody does on a closing: those stay unheard for ever
    UNHEARD,
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
# not written as in the other indexes, or else SQLite would look among all jobs of the backend for those of a commit
BACKEND_OF_HEAD: sa.ColumnElement[str] = sa.literal_column("lower(downstream_repo || '')", sa.Text)
sa.Index("ix_oot_workflow_job_head", oot_workflow_job.c.head_sha, BACKEND_OF_HEAD)
sa.Index(
    "ix_oot_workflow_job_name",  # how else does this job fare?
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

oot_key = sa.Table(
    "oot_key",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),  # the part of a static key that is no secret
    _must("repo", sa.Text),
    _must("digest", sa.LargeBinary),  # SHA-256 of the secret part
    _must("note", sa.Text),
    _must("created_at", Big),
    _column("used_at", Big),
    _column("revoked_at", Big),
)

oot_rate = sa.Table(
    "oot_rate",
    metadata,
    _must("caller", sa.Text),
    _must("second", Big),  # epoch seconds
    _must("accepted", sa.Integer),
    sa.PrimaryKeyConstraint("caller", "second", name="pk_oot_rate"),
)

repository_name = sa.Table(
    "repository_name",
    metadata,
    _must("repository_id", Big),
    _must("name", sa.Text),  # case folded; every name it was ever heard of by
    sa.PrimaryKeyConstraint("repository_id", "name", name="pk_repository_name"),
    sa.Index("ix_repository_name_name", "name"),
)
