"""Jobs that issues call unstable, checks that GitHub requires, tests that failed in a job, outlines of commits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0034"
down_revision = "0029"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "ci_unstable",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "name", name="pk_ci_unstable"),
    )
    op.create_table(
        "branch_rule",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("contexts", JSON, nullable=True),
        sa.Column("asked_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "branch", name="pk_branch_rule"),
    )
    op.add_column("ci_cell", sa.Column("failed_tests", sa.Text(), nullable=True))
    op.add_column("ci_commit", sa.Column("outline", sa.LargeBinary(), nullable=True))
