"""Why backends' jobs failed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "oot_failure_kind",
        sa.Column("job_key", sa.Text(), nullable=False, primary_key=True),
        sa.Column("kind", sa.Text(), nullable=False),
    )
    op.add_column("oot_day", sa.Column("infra", BIG, nullable=False, server_default="0"))
