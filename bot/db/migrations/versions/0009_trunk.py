"""The grid of a repository's own CI: columns, cells, commits of branches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "ci_column",
        sa.Column("id", BIG, nullable=False, primary_key=True),
        sa.Column("repository_id", BIG, nullable=False),
        *(_text(name) for name in ("workflow", "job", "base_name", "config", "flags")),
        sa.UniqueConstraint("repository_id", "workflow", "job", name="uq_ci_column"),
    )
    op.create_table(
        "ci_cell",
        sa.Column("repository_id", BIG, nullable=False),
        _text("head_sha"),
        sa.Column("column_id", BIG, nullable=False),
        sa.Column("job_id", BIG, nullable=False),
        sa.Column("numbered_column_id", BIG, nullable=True),
        sa.Column("run_id", BIG, nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("attempt", "shard", "shards")),
        *(sa.Column(name, sa.SmallInteger(), nullable=False) for name in ("state", "conclusion")),
        *(sa.Column(name, BIG, nullable=True) for name in ("queued_at", "started_at", "completed_at")),
        *(sa.Column(name, sa.Text(), nullable=True) for name in ("runner_label", "signature", "line")),
        sa.Column("tests_failed", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("repository_id", "head_sha", "column_id", "job_id", name="pk_ci_cell"),
    )
    op.create_index("ix_ci_cell_job", "ci_cell", ["repository_id", "job_id"])
    op.create_table(
        "branch_commit",
        sa.Column("repository_id", BIG, nullable=False),
        _text("branch"),
        _text("sha"),
        sa.Column("parent", sa.Text(), nullable=True),
        sa.Column("replaces", sa.Text(), nullable=True),
        sa.Column("at", BIG, nullable=False),
        _text("title"),
        sa.Column("author", sa.Text(), nullable=True),
        sa.Column("pr_number", BIG, nullable=True),
        sa.Column("folded", sa.Integer(), nullable=False),
        sa.Column("gone", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "branch", "sha", name="pk_branch_commit"),
    )
    op.create_index("ix_branch_commit_at", "branch_commit", ["repository_id", "branch", "at", "sha"])
    op.create_index("ix_branch_commit_sha", "branch_commit", ["sha", "repository_id"])


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)
