"""Label events are found by their pull request, not among all of the repository."""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_pull_label_event_number", "pull_label_event", ["pull_request_number"])
