"""Test results: tests, environments, what each job said, daily sums, states."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    _test_class()
    _test()
    _test_env()
    _test_job()
    _test_part()
    _test_summary()
    _test_failure()
    _test_day()
    _test_state()


def _test_class() -> None:
    op.create_table(
        "test_class",
        sa.Column("id", BIG, nullable=False),
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("last_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_test_class"),
        sa.UniqueConstraint("repository_id", "file", "suite", name="uq_test_class"),
        sqlite_autoincrement=True,
    )


def _test() -> None:
    op.create_table(
        "test",
        sa.Column("id", BIG, nullable=False),
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("class_id", BIG, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("canonical", BIG, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("declared_name", sa.Text(), nullable=True),
        sa.Column("language", sa.Text(), nullable=True),
        sa.Column("first_at", BIG, nullable=False),
        sa.Column("last_at", BIG, nullable=False),
        sa.Column("trusted_first_at", BIG, nullable=True),
        sa.Column("trusted_last_at", BIG, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_test"),
        sa.UniqueConstraint("repository_id", "digest", name="uq_test"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_test_canonical", "test", ["canonical"])
    op.create_index("ix_test_class_id", "test", ["class_id", "id"])


def _test_env() -> None:
    op.create_table(
        "test_env",
        sa.Column("id", BIG, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("os", sa.Text(), nullable=False),
        sa.Column("arch", sa.Text(), nullable=False),
        sa.Column("accelerator", sa.Text(), nullable=False),
        sa.Column("accelerator_version", sa.Text(), nullable=False),
        sa.Column("device_name", sa.Text(), nullable=False),
        sa.Column("device_count", sa.Integer(), nullable=False),
        sa.Column("python", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("env_group", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_test_env"),
        sa.UniqueConstraint("digest"),
    )


def _test_job() -> None:
    op.create_table(
        "test_job",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("run_id", BIG, nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("job_id", BIG, nullable=False),
        sa.Column("generation", BIG, nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("upstream_sha", sa.Text(), nullable=True),
        sa.Column("upstream_repo", sa.Text(), nullable=True),
        sa.Column("backend", sa.Text(), nullable=True),
        sa.Column("dispatch_id", sa.Text(), nullable=True),
        sa.Column("head_branch", sa.Text(), nullable=True),
        sa.Column("event", sa.Text(), nullable=True),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("pr_number", BIG, nullable=True),
        sa.Column("env_id", BIG, nullable=False),
        sa.Column("workflow", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("base_name", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=True),
        sa.Column("shards", sa.Integer(), nullable=True),
        sa.Column("rerun_disabled", sa.Boolean(), nullable=False),
        sa.Column("tests", sa.Integer(), nullable=False),
        sa.Column("passed", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("errors", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("xfailed", sa.Integer(), nullable=False),
        sa.Column("xpassed", sa.Integer(), nullable=False),
        sa.Column("flaky", sa.Integer(), nullable=False),
        sa.Column("crashed", sa.Integer(), nullable=False),
        sa.Column("left_out", sa.Integer(), nullable=False),
        sa.Column("time_ms", BIG, nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("unreadable", JSON, nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.Column("counted", BIG, nullable=False),
        sa.Column("counted_day", sa.Integer(), nullable=True),
        sa.Column("counted_group", sa.Text(), nullable=True),
        sa.Column("counted_block", sa.LargeBinary(), nullable=True),
        sa.Column("block", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("repository_id", "run_id", "run_attempt", "job_id", name="pk_test_job"),
    )
    op.create_index("ix_test_job_at", "test_job", ["at"])
    op.create_index(
        "ix_test_job_family",
        "test_job",
        ["repository_id", "family", "at"],
        sqlite_where=sa.text("trusted = 1 AND rerun_disabled = 0"),
        postgresql_where=sa.text("trusted AND NOT rerun_disabled"),
    )
    op.create_index("ix_test_job_generation", "test_job", ["generation"], unique=True)
    op.create_index("ix_test_job_head_sha", "test_job", ["repository_id", "head_sha"])
    op.create_index(
        "ix_test_job_uncounted",
        "test_job",
        ["repository_id", "at"],
        sqlite_where=sa.text(
            "trusted = 1 AND rerun_disabled = 0 AND counted != generation "
            "OR NOT (trusted = 1 AND rerun_disabled = 0) AND counted != 0"
        ),
        postgresql_where=sa.text(
            "trusted AND NOT rerun_disabled AND counted != generation "
            "OR NOT (trusted AND NOT rerun_disabled) AND counted != 0"
        ),
    )
    op.create_index("ix_test_job_upstream_sha", "test_job", ["upstream_sha"])


def _test_part() -> None:
    op.create_table(
        "test_part",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("run_id", BIG, nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("job_id", BIG, nullable=False),
        sa.Column("object_id", BIG, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=True),
        sa.Column("unreadable", JSON, nullable=False),
        sa.Column("received_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint(
            "repository_id", "run_id", "run_attempt", "job_id", "object_id", name="pk_test_part"
        ),
    )
    op.create_index("ix_test_part_object", "test_part", ["repository_id", "object_id"])
    op.create_index("ix_test_part_received_at", "test_part", ["received_at"])


def _test_summary() -> None:
    op.create_table(
        "test_summary",
        sa.Column("generation", BIG, nullable=False),
        sa.Column("class_id", BIG, nullable=False),
        sa.Column("invoking_file", sa.Text(), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("tests", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("errors", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("successes", sa.Integer(), nullable=False),
        sa.Column("flaky", sa.Integer(), nullable=False),
        sa.Column("time_ms", BIG, nullable=False),
        sa.PrimaryKeyConstraint("generation", "class_id", "invoking_file", name="pk_test_summary"),
    )
    op.create_index("ix_test_summary_class_id", "test_summary", ["class_id", "at"])


def _test_failure() -> None:
    op.create_table(
        "test_failure",
        sa.Column("generation", BIG, nullable=False),
        sa.Column("test_id", BIG, nullable=False),
        sa.Column("invoking_file", sa.Text(), nullable=False),
        sa.Column("outcome", sa.SmallInteger(), nullable=False),
        sa.Column("flaky", sa.Boolean(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("failed_attempts", sa.Integer(), nullable=False),
        sa.Column("time_ms", BIG, nullable=True),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("stack", sa.Text(), nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("evidence", JSON, nullable=True),
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("generation", "test_id", "invoking_file", name="pk_test_failure"),
    )
    op.create_index("ix_test_failure_at", "test_failure", ["repository_id", "at"])
    op.create_index("ix_test_failure_head_sha", "test_failure", ["head_sha"])
    op.create_index("ix_test_failure_signature", "test_failure", ["signature", "at"])
    op.create_index("ix_test_failure_test_id", "test_failure", ["test_id", "at"])


def _test_day() -> None:
    op.create_table(
        "test_day",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("page", BIG, nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("counts", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "page", "day", name="pk_test_day"),
    )
    op.create_index("ix_test_day_day", "test_day", ["day"])


def _test_state() -> None:
    op.create_table(
        "test_state",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("test_id", BIG, nullable=False),
        sa.Column("env_group", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("since", BIG, nullable=False),
        sa.Column("evidence", JSON, nullable=False),
        sa.Column("issue", sa.Text(), nullable=True),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "test_id", "env_group", name="pk_test_state"),
    )
    op.create_index("ix_test_state_state", "test_state", ["repository_id", "state", "since"])
