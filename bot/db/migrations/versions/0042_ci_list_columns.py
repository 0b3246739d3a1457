"""Put the small columns of lists before the large ones: SQLite reads a row from its beginning."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COPY = """
INSERT INTO ci_list (repository_id, name, etag, made_at, body, gzipped)
SELECT repository_id, name, etag, made_at, body, gzipped FROM ci_list_before
"""


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        return  # PostgreSQL keeps large values apart from their rows
    op.rename_table("ci_list", "ci_list_before")
    op.create_table(
        "ci_list",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("etag", sa.Text(), nullable=False),
        sa.Column("made_at", BIG, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("gzipped", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "name", name="pk_ci_list"),
    )
    op.execute(COPY)
    op.drop_table("ci_list_before")
