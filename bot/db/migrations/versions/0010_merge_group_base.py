"""What the commits of merge queues build on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("oot_merge_group", sa.Column("base_ref", sa.Text(), nullable=True))
    op.add_column("oot_merge_group", sa.Column("merged", sa.Boolean(), nullable=True))
    op.add_column("oot_merge_group", sa.Column("base_known", sa.Boolean(), nullable=True))
    op.add_column("oot_merge_group", sa.Column("asked_at", BIG, nullable=True))
