"""Classifying stored logs again when the rules change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "ci_reclassified",
        sa.Column("repository_id", BIG, nullable=False, primary_key=True, autoincrement=False),
        sa.Column("ruleset", sa.Text(), nullable=False),
        sa.Column("phase", sa.Integer(), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("job_id", BIG, nullable=False),
    )
    op.create_index(
        "ix_ci_verdict_at",
        "ci_verdict",
        ["repository_id", "at", "job_id"],
        sqlite_where=sa.text("current = 1 AND rank = 0"),
        postgresql_where=sa.text("current AND rank = 0"),
    )
