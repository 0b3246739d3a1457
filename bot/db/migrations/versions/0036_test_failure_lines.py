"""The line of the source at which a test failed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("test_failure", sa.Column("source_file", sa.Text, nullable=True))
    op.add_column("test_failure", sa.Column("line", sa.Integer, nullable=True))
