"""Runs by when they were first heard of: the sweep looks at those of the last days."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_workflow_run_received_at", "workflow_run", ["received_at"])
