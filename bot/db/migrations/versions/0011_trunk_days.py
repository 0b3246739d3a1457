"""Sums by day of the grid, and changes of a column's state."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_index("ix_ci_cell_queued_at", "ci_cell", ["repository_id", "queued_at"])
    op.create_table(
        "ci_day",
        *_of_day("branch"),
        *(_text(name) for name in ("name", "workflow", "cells")),
        sa.Column("seconds", BIG, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "branch", "day", "name", name="pk_ci_day"),
    )
    op.create_table(
        "ci_line",
        *_of_day("branch"),
        sa.Column("place", sa.Integer(), nullable=False),
        _text("sha"),
        _text("verdict"),
        *(sa.Column(name, BIG, nullable=True) for name in ("red_seconds", "signal_seconds")),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("jobs", "reruns", "flaky")),
        sa.Column("cancelled_seconds", BIG, nullable=False),
        sa.Column("seconds", JSON, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "branch", "day", "place", name="pk_ci_line"),
    )
    op.create_table(
        "ci_runner_day",
        *_of_day("label"),
        sa.Column("jobs", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.LargeBinary(), nullable=False) for name in ("queue", "duration")),
        sa.PrimaryKeyConstraint("repository_id", "label", "day", name="pk_ci_runner_day"),
    )
    op.create_table(
        "trunk_event",
        sa.Column("repository_id", BIG, nullable=False),
        *(_text(name) for name in ("branch", "name", "first_bad", "state_after", "state_before")),
        *(sa.Column(name, sa.Text(), nullable=True) for name in ("last_good", "signature")),
        sa.Column("at", BIG, nullable=True),
        sa.PrimaryKeyConstraint(
            "repository_id", "branch", "name", "first_bad", "state_after", name="pk_trunk_event"
        ),
    )
    op.create_index("ix_trunk_event_at", "trunk_event", ["repository_id", "branch", "at"])


def _of_day(of: str) -> tuple[sa.Column[int], sa.Column[str], sa.Column[int]]:
    return (
        sa.Column("repository_id", BIG, nullable=False),
        _text(of),
        sa.Column("day", sa.Integer(), nullable=False),
    )


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)
