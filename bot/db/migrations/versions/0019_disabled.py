"""Tests and jobs that issues disable, and the lists made of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    candidate = sa.text("state = 'open' AND substr(title, 1, 9) IN ('DISABLED ', 'UNSTABLE ')")
    op.create_index(
        "ix_issue_disabling",
        "issue",
        ["repository_id", "number"],
        sqlite_where=candidate,
        postgresql_where=candidate,
    )
    op.create_table(
        "ci_disabling",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("number", BIG, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("unstable", sa.Boolean(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("author", sa.Text()),
        sa.Column("url", sa.Text()),
        sa.Column("listed", sa.Boolean(), nullable=False),
        sa.Column("entries", JSON, nullable=False),
        sa.Column("problems", JSON, nullable=False),
        sa.Column("created_at", BIG),
        sa.Column("updated_at", BIG),
        sa.PrimaryKeyConstraint("repository_id", "number", name="pk_ci_disabling"),
    )
    op.create_table(
        "ci_list",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("gzipped", sa.LargeBinary(), nullable=False),
        sa.Column("etag", sa.Text(), nullable=False),
        sa.Column("made_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "name", name="pk_ci_list"),
    )
