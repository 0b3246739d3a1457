"""Our answers on issues that disable tests or jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "ci_disabling_comment",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("number", BIG, nullable=False),
        sa.Column("comment_id", BIG),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("writing_until", BIG, nullable=False),
        sa.Column("lost_until", BIG, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "number", name="pk_ci_disabling_comment"),
    )
