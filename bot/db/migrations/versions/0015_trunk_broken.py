"""How many columns of a branch are broken, and which branches were deleted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "ci_broken",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("column_group", sa.Text(), nullable=False),
        sa.Column("broken", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "branch", "column_group", name="pk_ci_broken"),
    )
    op.create_table(
        "trunk_branch",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("pushed_at", BIG, nullable=False),
        sa.Column("deleted_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "branch", name="pk_trunk_branch"),
    )
