"""Titles and authors of commits that came with the push of another one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "folded_commit",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("repository_id", "branch", "sha", name="pk_folded_commit"),
    )
