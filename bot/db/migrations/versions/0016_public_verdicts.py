"""Verdicts by repository: those of a repository that turns private leave the public counts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_ci_verdict_repository",
        "ci_verdict",
        ["repository_id", "family"],
        sqlite_where=sa.text("current = 1 AND rank = 0"),
        postgresql_where=sa.text("current AND rank = 0"),
    )
