"""Jobs hold the times and the triage verdict that their backends report, and may be of an unknown commit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("oot_workflow_job", sa.Column("reported_started_at", BIG, nullable=True))
    op.add_column("oot_workflow_job", sa.Column("reported_completed_at", BIG, nullable=True))
    op.add_column("oot_workflow_job", sa.Column("triage_verdict", JSON, nullable=True))
    op.create_index(
        "ix_oot_workflow_job_no_commit",
        "oot_workflow_job",
        ["delivery_id"],
        sqlite_where=sa.text("head_sha IS NULL"),
        postgresql_where=sa.text("head_sha IS NULL"),
    )
