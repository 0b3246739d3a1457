"""Repositories where the App may write no comment."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "oot_comment_refusal",
        sa.Column("upstream_repo", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("refused_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("upstream_repo", name=op.f("pk_oot_comment_refusal")),
    )
