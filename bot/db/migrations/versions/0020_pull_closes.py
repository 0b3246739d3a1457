"""What the commits of pull requests close by their messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "ci_pull_closes",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("number", BIG, nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("issues", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "number", name="pk_ci_pull_closes"),
    )
