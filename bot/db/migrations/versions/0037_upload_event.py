"""Files of runs that nobody dispatched."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ci_upload", sa.Column("event_type", sa.Text(), nullable=True))
    op.add_column("ci_upload", sa.Column("commit_sha", sa.Text(), nullable=True))
