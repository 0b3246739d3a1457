"""Closed issues that disabled something are found by their title."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    closed = sa.text("state = 'closed' AND substr(title, 1, 9) IN ('DISABLED ')")
    op.create_index(
        "ix_issue_disabled",
        "issue",
        ["repository_id", "title"],
        sqlite_where=closed,
        postgresql_where=closed,
    )
