"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")

# table -> what a repository's rows are ordered by; autogenerate does not see indexes of expressions on SQLite
ORDERED_BY = {
    "check_run": "id",
    "check_suite": "id",
    "installation": "id",
    "issue": "id",
    "issue_comment": "id",
    "issue_label_event": "guid",
    "pull_head": "number",
    "pull_label_event": "guid",
    "pull_request": "id",
    "pull_review": "id",
    "pull_review_comment": "id",
    "push": "guid",
    "repository": "id",
    "workflow_job": "id",
    "workflow_run": "id",
}


def upgrade() -> None:
    op.create_table(
        "allowlist_version",
        sa.Column("id", BIG, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("valid", sa.Boolean(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("loaded_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allowlist_version")),
    )
    op.create_table(
        "check_run",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("id", BIG, nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("external_id", sa.Text(), nullable=True),
        sa.Column("head_sha", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("conclusion", sa.Text(), nullable=True),
        sa.Column("check_suite_id", BIG, nullable=True),
        sa.Column("app_id", BIG, nullable=True),
        sa.Column("app_slug", sa.Text(), nullable=True),
        sa.Column("output_title", sa.Text(), nullable=True),
        sa.Column("output_summary", sa.Text(), nullable=True),
        sa.Column("output_annotations_count", BIG, nullable=True),
        sa.Column("pull_requests", JSON, nullable=True),
        sa.Column("details_url", sa.Text(), nullable=True),
        sa.Column("html_url", sa.Text(), nullable=True),
        sa.Column("started_at", BIG, nullable=True),
        sa.Column("completed_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "id", name="pk_check_run"),
    )
    op.create_index(
        "ix_check_run_in_flight",
        "check_run",
        ["received_at"],
        unique=False,
        sqlite_where=sa.text("status != 'completed'"),
        postgresql_where=sa.text("status != 'completed'"),
    )
    op.create_table(
        "check_suite",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("id", BIG, nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("head_branch", sa.Text(), nullable=True),
        sa.Column("head_sha", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("conclusion", sa.Text(), nullable=True),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=True),
        sa.Column("app_id", BIG, nullable=True),
        sa.Column("app_slug", sa.Text(), nullable=True),
        sa.Column("pull_requests", JSON, nullable=True),
        sa.Column("latest_check_runs_count", BIG, nullable=True),
        sa.Column("created_at", BIG, nullable=True),
        sa.Column("updated_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "id", name="pk_check_suite"),
    )
    op.create_table(
        "delivery",
        sa.Column("id", BIG, nullable=False),
        sa.Column("guid", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=True),
        sa.Column("repo", sa.Text(), nullable=True),
        sa.Column("repository_id", BIG, nullable=True),
        sa.Column("installation_id", BIG, nullable=True),
        sa.Column("app_id", BIG, nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("due_at", BIG, nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("headers", sa.Text(), nullable=True),
        sa.Column("codec", sa.Text(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delivery")),
        sa.UniqueConstraint("guid"),
    )
    op.create_index(
        "ix_delivery_pending",
        "delivery",
        ["due_at"],
        unique=False,
        sqlite_where=sa.text("state = 'stored'"),
        postgresql_where=sa.text("state = 'stored'"),
    )
    op.create_index("ix_delivery_received_at", "delivery", ["received_at"], unique=False)
    op.create_index(
        "ix_delivery_parked",
        "delivery",
        ["id"],
        unique=False,
        sqlite_where=sa.text("state = 'parked'"),
        postgresql_where=sa.text("state = 'parked'"),
    )
    op.create_table(
        "installation",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("id", BIG, nullable=False),
        sa.Column("account_login", sa.Text(), nullable=True),
        sa.Column("account_id", BIG, nullable=True),
        sa.Column("account_type", sa.Text(), nullable=True),
        sa.Column("app_id", BIG, nullable=True),
        sa.Column("app_slug", sa.Text(), nullable=True),
        sa.Column("target_type", sa.Text(), nullable=True),
        sa.Column("target_id", BIG, nullable=True),
        sa.Column("repository_selection", sa.Text(), nullable=True),
        sa.Column("permissions", JSON, nullable=True),
        sa.Column("events", JSON, nullable=True),
        sa.Column("suspended_at", BIG, nullable=True),
        sa.Column("created_at", BIG, nullable=True),
        sa.Column("updated_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "id", name="pk_installation"),
    )
    op.create_table(
        "issue",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("id", BIG, nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("number", BIG, nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=True),
        sa.Column("state_reason", sa.Text(), nullable=True),
        sa.Column("user_login", sa.Text(), nullable=True),
        sa.Column("user_id", BIG, nullable=True),
        sa.Column("author_association", sa.Text(), nullable=True),
        sa.Column("labels", JSON, nullable=True),
        sa.Column("assignees", JSON, nullable=True),
        sa.Column("milestone_title", sa.Text(), nullable=True),
        sa.Column("comments", BIG, nullable=True),
        sa.Column("locked", sa.Boolean(), nullable=True),
        sa.Column("active_lock_reason", sa.Text(), nullable=True),
        sa.Column("html_url", sa.Text(), nullable=True),
        sa.Column("created_at", BIG, nullable=True),
        sa.Column("updated_at", BIG, nullable=True),
        sa.Column("closed_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "id", name="pk_issue"),
    )
    op.create_index("ix_issue_number", "issue", ["number"], unique=False)
    op.create_table(
        "issue_comment",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("id", BIG, nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("user_login", sa.Text(), nullable=True),
        sa.Column("user_id", BIG, nullable=True),
        sa.Column("author_association", sa.Text(), nullable=True),
        sa.Column("html_url", sa.Text(), nullable=True),
        sa.Column("issue_url", sa.Text(), nullable=True),
        sa.Column("created_at", BIG, nullable=True),
        sa.Column("updated_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "id", name="pk_issue_comment"),
    )
    op.create_table(
        "issue_label_event",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("guid", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=True),
        sa.Column("issue_id", BIG, nullable=True),
        sa.Column("issue_number", BIG, nullable=True),
        sa.Column("label_id", BIG, nullable=True),
        sa.Column("label_name", sa.Text(), nullable=True),
        sa.Column("sender_login", sa.Text(), nullable=True),
        sa.Column("issue_updated_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "guid", name="pk_issue_label_event"),
    )
    op.create_table(
        "missed_delivery",
        sa.Column("app_id", BIG, nullable=False),
        sa.Column("guid", sa.Text(), nullable=False),
        sa.Column("log_id", BIG, nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("repository_id", BIG, nullable=True),
        sa.Column("delivered_at", BIG, nullable=False),
        sa.Column("asks", sa.Integer(), nullable=False),
        sa.Column("asked_at", BIG, nullable=False),
        sa.Column("lost", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("app_id", "guid", name="pk_missed_delivery"),
    )
    op.create_table(
        "oot_approval",
        sa.Column("upstream_repo", sa.Text(), nullable=False),
        sa.Column("pr_number", BIG, nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("login", sa.Text(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("upstream_repo", "pr_number", "head_sha", name="pk_oot_approval"),
    )
    op.create_table(
        "oot_changed_files",
        sa.Column("upstream_repo", sa.Text(), nullable=False),
        sa.Column("pr_number", BIG, nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("base_ref", sa.Text(), nullable=False),
        sa.Column("paths", JSON, nullable=False),
        sa.Column("asked_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("upstream_repo", "pr_number", "head_sha", name="pk_oot_changed_files"),
    )
    op.create_table(
        "oot_check",
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("upstream_repo", sa.Text(), nullable=False),
        sa.Column("pr_number", BIG, nullable=True),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("check_run_id", BIG, nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("conclusion", sa.Text(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("written_at", BIG, nullable=False),
        sa.Column("writing_until", BIG, nullable=False),
        sa.Column("lost_until", BIG, nullable=False),
        sa.Column("label_ended", sa.Boolean(), nullable=False),
        sa.Column("basis", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("external_id", name=op.f("pk_oot_check")),
    )
    op.create_index("ix_oot_check_head", "oot_check", ["head_sha"], unique=False)
    op.create_index("ix_oot_check_name", "oot_check", ["upstream_repo", "name"], unique=False)
    op.create_index("ix_oot_check_pull", "oot_check", ["upstream_repo", "pr_number"], unique=False)
    op.create_index("ix_oot_check_run", "oot_check", ["check_run_id"], unique=False)
    op.create_table(
        "oot_command",
        sa.Column("upstream_repo", sa.Text(), nullable=False),
        sa.Column("comment_id", BIG, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("pr_number", BIG, nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=True),
        sa.Column("login", sa.Text(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("upstream_repo", "comment_id", "position", name="pk_oot_command"),
    )
    op.create_index("ix_oot_command_login", "oot_command", ["login", "created_at"], unique=False)
    op.create_index("ix_oot_command_pull", "oot_command", ["upstream_repo", "pr_number"], unique=False)
    op.create_table(
        "oot_comment",
        sa.Column("upstream_repo", sa.Text(), nullable=False),
        sa.Column("pr_number", BIG, nullable=False),
        sa.Column("comment_id", BIG, nullable=True),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("written_at", BIG, nullable=False),
        sa.Column("writing_until", BIG, nullable=False),
        sa.Column("lost_until", BIG, nullable=False),
        sa.PrimaryKeyConstraint("upstream_repo", "pr_number", name="pk_oot_comment"),
    )
    op.create_table(
        "oot_dispatch",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("source_guid", sa.Text(), nullable=False),
        sa.Column("upstream_repo", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=True),
        sa.Column("pr_number", BIG, nullable=True),
        sa.Column("head_sha", sa.Text(), nullable=True),
        sa.Column("base_sha", sa.Text(), nullable=True),
        sa.Column("base_ref", sa.Text(), nullable=True),
        sa.Column("labels", JSON, nullable=True),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("backend_key", sa.Text(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("device", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("dispatched_at", BIG, nullable=True),
        sa.Column("heard_at", BIG, nullable=True),
        sa.Column("token_jti", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_oot_dispatch")),
        sa.UniqueConstraint("delivery_id", "backend_key", name="ux_oot_dispatch"),
    )
    op.create_index("ix_oot_dispatch_head", "oot_dispatch", ["head_sha"], unique=False)
    op.create_index("ix_oot_dispatch_pull", "oot_dispatch", ["upstream_repo", "pr_number"], unique=False)
    op.create_index("ix_oot_dispatch_source", "oot_dispatch", ["source_guid"], unique=False)
    op.create_index("ix_oot_dispatch_state", "oot_dispatch", ["state", "created_at"], unique=False)
    op.create_index(
        "ix_oot_dispatch_unanswered",
        "oot_dispatch",
        ["backend_key", "created_at"],
        unique=False,
        sqlite_where=sa.text("state IN ('failed', 'never_started', 'not_installed')"),
        postgresql_where=sa.text("state IN ('failed', 'never_started', 'not_installed')"),
    )
    op.create_index(
        "ix_oot_dispatch_awaited",
        "oot_dispatch",
        ["state", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("heard_at IS NULL AND level > 1 AND oot_dispatch.action IS NOT 'closed'"),
        postgresql_where=sa.text("heard_at IS NULL AND level > 1 AND action IS DISTINCT FROM 'closed'"),
    )
    op.create_table(
        "oot_ignore",
        sa.Column("upstream_repo", sa.Text(), nullable=False),
        sa.Column("pr_number", BIG, nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("base_ref", sa.Text(), nullable=True),
        sa.Column("backend_key", sa.Text(), nullable=False),
        sa.Column("login", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint(
            "upstream_repo", "pr_number", "head_sha", "backend_key", name="pk_oot_ignore"
        ),
    )
    op.create_table(
        "oot_key",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("used_at", BIG, nullable=True),
        sa.Column("revoked_at", BIG, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_oot_key")),
    )
    op.create_table(
        "oot_mention",
        sa.Column("upstream_repo", sa.Text(), nullable=False),
        sa.Column("pr_number", BIG, nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("backend_key", sa.Text(), nullable=False),
        sa.Column("over", sa.Boolean(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint(
            "upstream_repo", "pr_number", "head_sha", "backend_key", name="pk_oot_mention"
        ),
    )
    op.create_table(
        "oot_compared",
        sa.Column("job_key", sa.Text(), nullable=False),
        sa.Column("completed_at", BIG, nullable=False),
        sa.Column("history", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("elsewhere", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("job_key", name="pk_oot_compared"),
    )
    op.create_table(
        "oot_merge_base",
        sa.Column("upstream_repo", sa.Text(), nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("base_ref", sa.Text(), nullable=False),
        sa.Column("merge_base", sa.Text(), nullable=True),
        sa.Column("asked_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("upstream_repo", "head_sha", "base_ref", name="pk_oot_merge_base"),
    )
    op.create_table(
        "oot_merge_group",
        sa.Column("upstream_repo", sa.Text(), nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("base_sha", sa.Text(), nullable=True),
        sa.Column("pr_number", BIG, nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("ended_at", BIG, nullable=True),
        sa.PrimaryKeyConstraint("upstream_repo", "head_sha", name="pk_oot_merge_group"),
    )
    op.create_index(
        "ix_oot_merge_group_pull", "oot_merge_group", ["upstream_repo", "pr_number"], unique=False
    )
    op.create_table(
        "oot_rate",
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("second", BIG, nullable=False),
        sa.Column("accepted", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("caller", "second", name="pk_oot_rate"),
    )
    op.create_table(
        "oot_rerun",
        sa.Column("dispatch_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("from_attempt", sa.Integer(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("dispatch_id", "run_id", "from_attempt", name="pk_oot_rerun"),
    )
    op.create_index(
        "ix_oot_rerun_awaited",
        "oot_rerun",
        ["created_at"],
        unique=False,
        sqlite_where=sa.text("state IN ('asked', 'sent')"),
        postgresql_where=sa.text("state IN ('asked', 'sent')"),
    )
    op.create_table(
        "oot_run",
        sa.Column("backend_key", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("checked_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("backend_key", "run_id", "run_attempt", name="pk_oot_run"),
    )
    op.create_table(
        "oot_workflow_job",
        sa.Column("job_key", sa.Text(), nullable=False),
        sa.Column("dispatch_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("conclusion", sa.Text(), nullable=True),
        sa.Column("downstream_repo", sa.Text(), nullable=False),
        sa.Column("upstream_repo", sa.Text(), nullable=False),
        sa.Column("pr_number", BIG, nullable=True),
        sa.Column("head_sha", sa.Text(), nullable=True),
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("workflow_run_url", sa.Text(), nullable=True),
        sa.Column("workflow_name", sa.Text(), nullable=False),
        sa.Column("job_name", sa.Text(), nullable=False),
        sa.Column("check_run_id", sa.Text(), nullable=True),
        sa.Column("reporter_check_run_id", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("queue_time", sa.Float(precision=53), nullable=True),
        sa.Column("execution_time", sa.Float(precision=53), nullable=True),
        sa.Column("started_at", BIG, nullable=True),
        sa.Column("completed_at", BIG, nullable=True),
        sa.Column("total_tests", BIG, nullable=True),
        sa.Column("passed_tests", BIG, nullable=True),
        sa.Column("failed_tests", BIG, nullable=True),
        sa.Column("skipped_tests", BIG, nullable=True),
        sa.Column("failed_tests_json", JSON, nullable=True),
        sa.Column("artifact_url", sa.Text(), nullable=True),
        sa.Column("environment", JSON, nullable=True),
        sa.Column("downstream_repo_level", sa.Integer(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("flags", JSON, nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("updated_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("job_key", name=op.f("pk_oot_workflow_job")),
    )
    op.create_index(
        "ix_oot_workflow_job_backend",
        "oot_workflow_job",
        [sa.text("lower(downstream_repo)"), "received_at"],
        unique=False,
    )
    op.create_index("ix_oot_workflow_job_dispatch", "oot_workflow_job", ["dispatch_id"], unique=False)
    op.create_index(
        "ix_oot_workflow_job_name",
        "oot_workflow_job",
        [sa.text("lower(downstream_repo)"), "job_name", "workflow_name", "completed_at", "pr_number"],
        unique=False,
    )
    op.create_index(
        "ix_oot_workflow_job_open",
        "oot_workflow_job",
        ["started_at"],
        unique=False,
        sqlite_where=sa.text("status = 'in_progress'"),
        postgresql_where=sa.text("status = 'in_progress'"),
    )
    op.create_index(
        "ix_oot_workflow_job_pull", "oot_workflow_job", ["upstream_repo", "pr_number"], unique=False
    )
    op.create_index(
        "ix_oot_workflow_job_run",
        "oot_workflow_job",
        ["run_id", "job_name", "workflow_name", "delivery_id", "run_attempt"],
        unique=False,
    )
    op.create_index(
        "ix_oot_workflow_job_failed",
        "oot_workflow_job",
        [sa.text("lower(downstream_repo)"), "received_at"],
        unique=False,
        sqlite_where=sa.text("failed_tests_json IS NOT NULL"),
        postgresql_where=sa.text("failed_tests_json IS NOT NULL"),
    )
    op.create_index(
        "ix_oot_workflow_job_head",
        "oot_workflow_job",
        ["head_sha", sa.text("lower(downstream_repo || '')")],
        unique=False,
    )
    op.create_table(
        "pull_head",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("number", BIG, nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("head_ref", sa.Text(), nullable=True),
        sa.Column("base_sha", sa.Text(), nullable=True),
        sa.Column("base_ref", sa.Text(), nullable=True),
        sa.Column("updated_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "number", "head_sha", name="pk_pull_head"),
    )
    op.create_table(
        "pull_label_event",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("guid", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=True),
        sa.Column("pull_request_id", BIG, nullable=True),
        sa.Column("pull_request_number", BIG, nullable=True),
        sa.Column("pull_request_head_sha", sa.Text(), nullable=True),
        sa.Column("label_id", BIG, nullable=True),
        sa.Column("label_name", sa.Text(), nullable=True),
        sa.Column("sender_login", sa.Text(), nullable=True),
        sa.Column("pull_request_updated_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "guid", name="pk_pull_label_event"),
    )
    op.create_table(
        "pull_request",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("id", BIG, nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("number", BIG, nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=True),
        sa.Column("draft", sa.Boolean(), nullable=True),
        sa.Column("locked", sa.Boolean(), nullable=True),
        sa.Column("user_login", sa.Text(), nullable=True),
        sa.Column("user_id", BIG, nullable=True),
        sa.Column("author_association", sa.Text(), nullable=True),
        sa.Column("labels", JSON, nullable=True),
        sa.Column("assignees", JSON, nullable=True),
        sa.Column("requested_reviewers", JSON, nullable=True),
        sa.Column("milestone_title", sa.Text(), nullable=True),
        sa.Column("head_sha", sa.Text(), nullable=True),
        sa.Column("head_ref", sa.Text(), nullable=True),
        sa.Column("head_repo_full_name", sa.Text(), nullable=True),
        sa.Column("head_repo_id", BIG, nullable=True),
        sa.Column("base_sha", sa.Text(), nullable=True),
        sa.Column("base_ref", sa.Text(), nullable=True),
        sa.Column("merged", sa.Boolean(), nullable=True),
        sa.Column("merge_commit_sha", sa.Text(), nullable=True),
        sa.Column("merged_by_login", sa.Text(), nullable=True),
        sa.Column("comments", BIG, nullable=True),
        sa.Column("review_comments", BIG, nullable=True),
        sa.Column("commits", BIG, nullable=True),
        sa.Column("additions", BIG, nullable=True),
        sa.Column("deletions", BIG, nullable=True),
        sa.Column("changed_files", BIG, nullable=True),
        sa.Column("html_url", sa.Text(), nullable=True),
        sa.Column("created_at", BIG, nullable=True),
        sa.Column("updated_at", BIG, nullable=True),
        sa.Column("closed_at", BIG, nullable=True),
        sa.Column("merged_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "id", name="pk_pull_request"),
    )
    op.create_index("ix_pull_head_head_sha", "pull_head", ["head_sha"], unique=False)
    op.create_index("ix_pull_request_head_sha", "pull_request", ["head_sha"], unique=False)
    op.create_index("ix_pull_request_number", "pull_request", ["number"], unique=False)
    op.create_index(
        "ix_pull_request_open",
        "pull_request",
        ["number"],
        unique=False,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_table(
        "pull_review",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("id", BIG, nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=True),
        sa.Column("user_login", sa.Text(), nullable=True),
        sa.Column("user_id", BIG, nullable=True),
        sa.Column("author_association", sa.Text(), nullable=True),
        sa.Column("commit_id", sa.Text(), nullable=True),
        sa.Column("html_url", sa.Text(), nullable=True),
        sa.Column("pull_request_url", sa.Text(), nullable=True),
        sa.Column("submitted_at", BIG, nullable=True),
        sa.Column("updated_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "id", name="pk_pull_review"),
    )
    op.create_table(
        "pull_review_comment",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("id", BIG, nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("pull_request_review_id", BIG, nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("line", BIG, nullable=True),
        sa.Column("side", sa.Text(), nullable=True),
        sa.Column("user_login", sa.Text(), nullable=True),
        sa.Column("user_id", BIG, nullable=True),
        sa.Column("author_association", sa.Text(), nullable=True),
        sa.Column("commit_id", sa.Text(), nullable=True),
        sa.Column("original_commit_id", sa.Text(), nullable=True),
        sa.Column("in_reply_to_id", BIG, nullable=True),
        sa.Column("diff_hunk", sa.Text(), nullable=True),
        sa.Column("html_url", sa.Text(), nullable=True),
        sa.Column("pull_request_url", sa.Text(), nullable=True),
        sa.Column("created_at", BIG, nullable=True),
        sa.Column("updated_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "id", name="pk_pull_review_comment"),
    )
    op.create_table(
        "push",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("guid", sa.Text(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=True),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=True),
        sa.Column("created", sa.Boolean(), nullable=True),
        sa.Column("deleted", sa.Boolean(), nullable=True),
        sa.Column("forced", sa.Boolean(), nullable=True),
        sa.Column("base_ref", sa.Text(), nullable=True),
        sa.Column("compare", sa.Text(), nullable=True),
        sa.Column("commits", JSON, nullable=True),
        sa.Column("head_commit_id", sa.Text(), nullable=True),
        sa.Column("head_commit_message", sa.Text(), nullable=True),
        sa.Column("head_commit_timestamp", BIG, nullable=True),
        sa.Column("pusher_name", sa.Text(), nullable=True),
        sa.Column("sender_login", sa.Text(), nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "guid", name="pk_push"),
    )
    op.create_table(
        "repository",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("id", BIG, nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("full_name", sa.Text(), nullable=True),
        sa.Column("private", sa.Boolean(), nullable=True),
        sa.Column("owner_login", sa.Text(), nullable=True),
        sa.Column("owner_id", BIG, nullable=True),
        sa.Column("fork", sa.Boolean(), nullable=True),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("archived", sa.Boolean(), nullable=True),
        sa.Column("disabled", sa.Boolean(), nullable=True),
        sa.Column("visibility", sa.Text(), nullable=True),
        sa.Column("default_branch", sa.Text(), nullable=True),
        sa.Column("language", sa.Text(), nullable=True),
        sa.Column("topics", JSON, nullable=True),
        sa.Column("html_url", sa.Text(), nullable=True),
        sa.Column("created_at", BIG, nullable=True),
        sa.Column("updated_at", BIG, nullable=True),
        sa.Column("pushed_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "id", name="pk_repository"),
    )
    op.create_table(
        "secret",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_secret")),
    )
    op.create_table(
        "repository_name",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "name", name="pk_repository_name"),
    )
    op.create_index("ix_repository_name_name", "repository_name", ["name"])
    op.create_table(
        "sweep",
        sa.Column("app_id", BIG, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("tried_at", BIG, nullable=True),
        sa.Column("reached", BIG, nullable=True),
        sa.Column("finished_at", BIG, nullable=True),
        sa.Column("found", BIG, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "name", name="pk_sweep"),
    )
    op.create_table(
        "task",
        sa.Column("id", BIG, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("due_at", BIG, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lease_until", BIG, nullable=True),
        sa.Column("finished_at", BIG, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task")),
    )
    op.create_index(
        "ix_task_dead",
        "task",
        ["kind", "key"],
        unique=False,
        sqlite_where=sa.text("state = 'dead'"),
        postgresql_where=sa.text("state = 'dead'"),
    )
    op.create_index(
        "ix_task_due",
        "task",
        ["due_at"],
        unique=False,
        sqlite_where=sa.text("state = 'waiting'"),
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.create_index("ix_task_state", "task", ["state", "id"], unique=False)
    op.create_index(
        "ux_task_running",
        "task",
        ["kind", "key"],
        unique=True,
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index(
        "ux_task_waiting",
        "task",
        ["kind", "key"],
        unique=True,
        sqlite_where=sa.text("state = 'waiting'"),
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.create_table(
        "workflow_job",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("id", BIG, nullable=False),
        sa.Column("run_id", BIG, nullable=True),
        sa.Column("run_attempt", BIG, nullable=True),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("workflow_name", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("conclusion", sa.Text(), nullable=True),
        sa.Column("head_sha", sa.Text(), nullable=True),
        sa.Column("head_branch", sa.Text(), nullable=True),
        sa.Column("labels", JSON, nullable=True),
        sa.Column("runner_id", BIG, nullable=True),
        sa.Column("runner_name", sa.Text(), nullable=True),
        sa.Column("runner_group_id", BIG, nullable=True),
        sa.Column("runner_group_name", sa.Text(), nullable=True),
        sa.Column("steps", JSON, nullable=True),
        sa.Column("html_url", sa.Text(), nullable=True),
        sa.Column("created_at", BIG, nullable=True),
        sa.Column("started_at", BIG, nullable=True),
        sa.Column("completed_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "id", name="pk_workflow_job"),
    )
    op.create_index(
        "ix_workflow_job_in_flight",
        "workflow_job",
        ["received_at"],
        unique=False,
        sqlite_where=sa.text("status != 'completed'"),
        postgresql_where=sa.text("status != 'completed'"),
    )
    op.create_table(
        "workflow_run",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("id", BIG, nullable=False),
        sa.Column("run_attempt", BIG, nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("display_title", sa.Text(), nullable=True),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("event", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("conclusion", sa.Text(), nullable=True),
        sa.Column("workflow_id", BIG, nullable=True),
        sa.Column("check_suite_id", BIG, nullable=True),
        sa.Column("run_number", BIG, nullable=True),
        sa.Column("head_branch", sa.Text(), nullable=True),
        sa.Column("head_sha", sa.Text(), nullable=True),
        sa.Column("head_repository_full_name", sa.Text(), nullable=True),
        sa.Column("actor_login", sa.Text(), nullable=True),
        sa.Column("triggering_actor_login", sa.Text(), nullable=True),
        sa.Column("pull_requests", JSON, nullable=True),
        sa.Column("html_url", sa.Text(), nullable=True),
        sa.Column("created_at", BIG, nullable=True),
        sa.Column("updated_at", BIG, nullable=True),
        sa.Column("run_started_at", BIG, nullable=True),
        sa.Column("deleted_at", BIG, nullable=True),
        sa.Column("merge_state", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "id", "run_attempt", name="pk_workflow_run"),
    )
    op.create_index("ix_workflow_run_id", "workflow_run", ["id"], unique=False)
    op.create_index(
        "ix_workflow_run_in_flight",
        "workflow_run",
        ["received_at"],
        unique=False,
        sqlite_where=sa.text("status != 'completed'"),
        postgresql_where=sa.text("status != 'completed'"),
    )
    op.create_index("ix_push_after", "push", ["after"], unique=False)
    op.create_index("ix_push_guid", "push", ["guid"], unique=False)
    op.create_index("ix_workflow_job_head_sha", "workflow_job", ["head_sha"], unique=False)
    op.create_index("ix_check_run_head_sha", "check_run", ["head_sha"], unique=False)
    _rollup()
    _installation()
    for table, key in ORDERED_BY.items():
        op.create_index(f"ix_{table}_repo", table, [sa.text("lower(repo)"), key], unique=False)


def _rollup() -> None:
    """The daily numbers of each backend."""
    counts = (
        "runs",
        "success",
        "failure",
        "timed_out",
        "cancelled",
        "skipped",
        "neutral",
        "running",
        "never_started",
        "not_dispatched",
        "superseded",
    )
    op.create_table(
        "oot_day",
        sa.Column("backend_key", sa.Text(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("upstream_key", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        *(sa.Column(name, BIG, nullable=False) for name in counts),
        *(sa.Column(name, sa.LargeBinary(), nullable=False) for name in ("execution", "queue", "whole")),
        sa.Column("hours", JSON, nullable=False),
        sa.Column("last_at", BIG, nullable=False),
        sa.Column("written_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("backend_key", "day", "upstream_key", "event_type", name="pk_oot_day"),
    )
    op.create_index("ix_oot_day_day", "oot_day", ["day", "written_at", "backend_key"], unique=False)
    op.create_table(
        "oot_level",
        sa.Column("backend_key", sa.Text(), nullable=False),
        sa.Column("since", BIG, nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("backend_key", "since", name="pk_oot_level"),
    )


def _installation() -> None:
    """What it has used of GitHub's patience, and which programs may use these tables."""
    op.create_table(
        "oot_budget",
        sa.Column("app_id", BIG, nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("next_write", BIG, nullable=False),
        sa.Column("blocked_until", BIG, nullable=False),
        sa.Column("pressed_until", BIG, nullable=False),
        sa.Column("creations", JSON, nullable=False),
        sa.Column("dispatches", JSON, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "account", name="pk_oot_budget"),
    )
    support = op.create_table("schema_support", sa.Column("oldest", sa.Text(), primary_key=True))
    op.bulk_insert(support, [{"oldest": revision}])
