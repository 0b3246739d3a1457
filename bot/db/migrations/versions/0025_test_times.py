"""How long tests take."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "test_time",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("base_name", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("files", sa.LargeBinary(), nullable=False),
        sa.Column("classes", sa.LargeBinary(), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "base_name", "config", name="pk_test_time"),
    )
    op.create_table(
        "test_time_source",
        sa.Column("repository_id", BIG, nullable=False, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("at", BIG, nullable=False),
    )
