"""An index of the jobs that passed, for the last good commit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    passed = sa.text("conclusion = 1")
    op.create_index(
        "ix_ci_cell_passed",
        "ci_cell",
        ["repository_id", "head_sha", "column_id"],
        sqlite_where=passed,
        postgresql_where=passed,
    )
