"""What machines did while jobs ran, and sums of that by day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from bot.db.columns import Big, Float, Json

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

MEASURES = ("cpu", "mem", "gpu", "gpu_bw", "gpu_alloc")


def upgrade() -> None:
    _jobs()
    _days()


def _jobs() -> None:
    op.create_table(
        "utilization_job",
        *(sa.Column(name, Big, nullable=False) for name in ("repository_id", "run_id")),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("job_id", Big, nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in (
                "repo", "workflow_name", "job_name", "base_name", "config", "runner_label", "head_sha", "head_branch",
                "digest", "status", "reason",
            )
        ),
        *(sa.Column(name, sa.Boolean(), nullable=False) for name in ("trusted", "oom_risk")),
        *(sa.Column(name, sa.Text()) for name in ("model_version", "gpu_type", "blob")),
        *(
            sa.Column(name, Big, nullable=False)
            for name in ("source_id", "start_at", "end_at", "machine_s", "received_at")
        ),
        *(sa.Column(name, Json, nullable=False) for name in ("flags", "segments", "totals")),
        sa.Column("collect_interval", Float),
        *(sa.Column(name, sa.Integer()) for name in ("gpu_count", "cpu_count")),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("records", "error_records", "day")),
        *(sa.Column(f"{name}_{part}", Float) for name in MEASURES for part in ("avg", "p90", "max")),
        *(
            sa.Column(name, Float, nullable=False)
            for name in ("observed_s", "idle_gpu_s", "gpu_s", "no_data_s", "saturated_s")
        ),
        sa.Column("peak", Json),
        sa.Column("histograms", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "run_id", "run_attempt", "job_id", name="pk_utilization_job"),
    )  # fmt: skip
    for name, columns in (
        ("job", ["repository_id", "job_id"]),
        ("head_sha", ["head_sha", "repository_id"]),
        ("run", ["run_id", "run_attempt"]),
        ("day", ["day"]),
        ("newest", ["repository_id", "received_at"]),
    ):
        op.create_index(f"ix_utilization_job_{name}", "utilization_job", columns)


def _days() -> None:
    op.create_table(
        "utilization_day",
        sa.Column("repository_id", Big, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("kind", "group_key", "parent")),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("span", "day", "jobs")),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        *(
            sa.Column(name, Big, nullable=False)
            for name in ("records", *(f"{name}_sum" for name in MEASURES), "idle_gpu_s", "gpu_s")
        ),
        sa.Column("histograms", sa.LargeBinary(), nullable=False),
        sa.Column("seconds", Json, nullable=False),
        sa.PrimaryKeyConstraint(
            "repository_id", "kind", "span", "day", "group_key", "parent", "trusted", name="pk_utilization_day"
        ),
    )  # fmt: skip
    op.create_index("ix_utilization_day_day", "utilization_day", ["day"])
