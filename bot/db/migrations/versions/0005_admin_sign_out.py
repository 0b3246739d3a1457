"""Signing out ends all sessions of an ADMIN_TOKEN."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "admin_sign_out",
        sa.Column("token_id", sa.Text(), nullable=False),
        sa.Column("not_before", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("token_id", name="pk_admin_sign_out"),
    )
