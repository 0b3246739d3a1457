"""Tests that a complete run has lost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "test_loss",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("run_id", BIG, nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("class_id", BIG, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=True),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("base_sha", sa.Text(), nullable=False),
        sa.Column("tests_before", sa.Integer(), nullable=False),
        sa.Column("tests", sa.Integer(), nullable=False),
        sa.Column("skipped_before", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("gone", sa.Integer(), nullable=False),
        sa.Column("examples", JSON, nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "run_id", "family", "class_id", "kind", name="pk_test_loss"),
    )
    op.create_index("ix_test_loss_at", "test_loss", ["repository_id", "at"])
    op.create_index("ix_test_loss_head_sha", "test_loss", ["head_sha"])
