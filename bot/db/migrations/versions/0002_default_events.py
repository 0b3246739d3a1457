"""Versions of the allowlist hold the default events they were read with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("allowlist_version", sa.Column("default_events", sa.Text(), nullable=True))
