"""Kinds of failures, in the cells of the grid and in its sums by day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("ci_cell", sa.Column("failure_kind", sa.Text(), nullable=True))
    op.add_column("ci_line", sa.Column("failures", JSON, nullable=True))
