"""Collecting of CI's artifacts and logs: its tables, the class of a task, the id of a run's head repository."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("workflow_run", sa.Column("head_repository_id", BIG, nullable=True))
    op.create_index("ix_workflow_run_head_sha", "workflow_run", ["head_sha"])
    op.create_index("ix_workflow_job_run", "workflow_job", ["run_id", "repository_id"])
    op.add_column("task", sa.Column("background", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index(
        "ix_task_due_foreground",
        "task",
        ["due_at"],
        sqlite_where=sa.text("state = 'waiting' AND background = 0"),
        postgresql_where=sa.text("state = 'waiting' AND background = false"),
    )
    _artifacts()
    _spent()
    default = op.create_table(
        "ci_default",
        sa.Column("name", sa.Text(), nullable=False, primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )
    # who upgrades has not asked for more calls to GitHub, nor for logs on the disk: unset means off there
    if op.get_bind().execute(sa.text("SELECT 1 FROM delivery LIMIT 1")).first():
        op.bulk_insert(default, [{"name": "ci", "value": "off"}])


def _artifacts() -> None:
    """What was found and fetched."""
    op.create_table(
        "ci_artifact",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("id", BIG, nullable=False),
        sa.Column("run_id", BIG, nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("job_id", BIG, nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("size_in_bytes", BIG, nullable=False),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("created_at", BIG, nullable=True),
        sa.Column("updated_at", BIG, nullable=True),
        sa.Column("expires_at", BIG, nullable=True),
        sa.Column("expired", sa.Boolean(), nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("flags", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "id", name="pk_ci_artifact"),
    )
    op.create_index("ix_ci_artifact_run", "ci_artifact", ["repository_id", "run_id", "id"])
    op.create_index("ix_ci_artifact_head_sha", "ci_artifact", ["head_sha", "repository_id", "id"])
    op.create_index("ix_ci_artifact_name", "ci_artifact", ["repository_id", "name", "id"])
    op.create_table(
        "ci_fetch",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("object_id", BIG, nullable=False),
        sa.Column("run_id", BIG, nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("job_id", BIG, nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due_at", BIG, nullable=True),
        sa.Column("size", BIG, nullable=True),
        sa.Column("sha256", sa.Text(), nullable=True),
        sa.Column("blob", sa.Text(), nullable=True),
        sa.Column("parser", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("asked_at", BIG, nullable=False),
        sa.Column("done_at", BIG, nullable=True),
        sa.PrimaryKeyConstraint("repository_id", "kind", "object_id", name="pk_ci_fetch"),
    )
    op.create_index("ix_ci_fetch_run", "ci_fetch", ["repository_id", "run_id", "kind", "object_id"])
    op.create_index("ix_ci_fetch_asked_at", "ci_fetch", ["asked_at"])
    for name, column, where in (
        ("wanted", "asked_at", "state = 'wanted'"),
        ("blob", "blob", "blob IS NOT NULL"),
    ):
        condition = sa.text(where)
        op.create_index(
            f"ix_ci_fetch_{name}", "ci_fetch", [column], sqlite_where=condition, postgresql_where=condition
        )
    op.create_table(
        "ci_listing",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("run_id", BIG, nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("passes", sa.Integer(), nullable=False),
        sa.Column("artifacts", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "run_id", "run_attempt", name="pk_ci_listing"),
    )


def _spent() -> None:
    """What it costs: calls, bytes, and GitHub's storage."""
    op.create_table(
        "ci_budget",
        sa.Column("account", sa.Text(), nullable=False, primary_key=True),
        sa.Column("calls", sa.Float(53), nullable=False),
        sa.Column("bytes", sa.Float(53), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("minutes", JSON, nullable=False),
    )
    op.create_table(
        "ci_storage_day",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("workflow", sa.Text(), nullable=False),
        sa.Column("artifacts", BIG, nullable=False),
        sa.Column("bytes", BIG, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "day", "workflow", name="pk_ci_storage_day"),
    )
