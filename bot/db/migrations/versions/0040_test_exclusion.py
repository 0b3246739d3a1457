"""Files of tests that jobs left out on purpose."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "test_exclusion",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("run_id", BIG, nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("job_id", BIG, nullable=False),
        sa.Column("object_id", BIG, nullable=False),
        sa.Column("files", JSON, nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint(
            "repository_id", "run_id", "run_attempt", "job_id", "object_id", name="pk_test_exclusion"
        ),
    )
    op.create_index("ix_test_exclusion_received_at", "test_exclusion", ["received_at"])
