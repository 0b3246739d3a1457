"""Whether a dispatch has to be answered, and how many were not run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("oot_dispatch", sa.Column("answers", sa.Text(), nullable=True))
    op.add_column("oot_day", sa.Column("not_run", BIG, nullable=False, server_default="0"))
