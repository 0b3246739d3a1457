"""The cells of a commit, stored until one of its jobs changes; when columns of the grid were last seen."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

Big = sa.BigInteger().with_variant(sa.Integer, "sqlite")
# every commit that has cells; without stored ones they are read one by one
COMMITS = """
    INSERT INTO ci_commit (repository_id, head_sha, mark)
    SELECT DISTINCT branch_commit.repository_id, branch_commit.sha, 0 FROM branch_commit
"""


def upgrade() -> None:
    op.create_table(
        "ci_commit",
        sa.Column("repository_id", Big, nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("mark", Big, nullable=False),
        sa.Column("cells", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("repository_id", "head_sha", name="pk_ci_commit"),
    )
    op.execute(COMMITS)
    op.add_column("ci_column", sa.Column("seen", sa.Integer(), nullable=False, server_default="0"))
    op.execute(sa.text("UPDATE ci_column SET seen = :today").bindparams(today=int(time.time()) // 86_400))
    op.drop_index("ix_ci_cell_passed", table_name="ci_cell")
