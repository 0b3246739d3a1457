"""Reruns of disabled tests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "test_rerun",
        sa.Column("generation", BIG, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("green", sa.Integer(), nullable=False),
        sa.Column("red", sa.Integer(), nullable=False),
        sa.Column("flaky", sa.Boolean(), nullable=False),
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("platforms", JSON, nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("generation", "name", "suite", "file", name="pk_test_rerun"),
    )
    op.create_index("ix_test_rerun_at", "test_rerun", ["repository_id", "at"])
    op.create_table(
        "test_rerun_job",
        sa.Column("generation", BIG, nullable=False, primary_key=True, autoincrement=False),
        sa.Column("at", BIG, nullable=False),
    )
