"""Flags and properties of run reports."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    for table, name in (("test_job", "flags"), ("test_job", "properties"), ("test_failure", "properties")):
        op.add_column(table, sa.Column(name, JSON))
