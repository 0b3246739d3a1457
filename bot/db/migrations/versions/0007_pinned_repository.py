"""Names in the settings are pinned to the ids of their repositories."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "pinned_repository",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("pinned_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_pinned_repository"),
    )
