"""Files that backends on another CI upload."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "ci_upload",
        sa.Column("id", BIG, nullable=False, primary_key=True),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("backend_key", sa.Text(), nullable=False),
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("dispatch_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("workflow", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size", BIG, nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.Column("received_at", BIG, nullable=False),
    )
    op.create_index("ix_ci_upload_backend_key", "ci_upload", ["backend_key", "received_at"])
    op.create_index("ix_ci_upload_dispatch_id", "ci_upload", ["dispatch_id"])
