"""Which commits of branches only GitHub's list has told of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "branch_commit", sa.Column("listed", sa.Boolean(), nullable=False, server_default=sa.false())
    )
