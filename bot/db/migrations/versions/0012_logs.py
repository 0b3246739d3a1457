"""Logs: what is kept of them, verdicts, signatures of failures with their days, rulesets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    _log()
    _verdict()
    _signature()
    _signature_day()
    _ruleset()


def _log() -> None:
    op.create_table(
        "ci_log",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("job_id", BIG, nullable=False),
        sa.Column("run_id", BIG, nullable=False),
        sa.Column("run_attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("bytes", BIG, nullable=False),
        sa.Column("lines", BIG, nullable=False),
        sa.Column("longest_line", BIG, nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=True),
        sa.Column("first_at", BIG, nullable=True),
        sa.Column("last_at", BIG, nullable=True),
        sa.Column("fetched_at", BIG, nullable=False),
        sa.Column("truncated", sa.Boolean(), nullable=False),
        sa.Column("secrets_masked", sa.Integer(), nullable=False),
        sa.Column("head_sha", sa.Text(), nullable=False),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("first_error", JSON, nullable=True),
        sa.PrimaryKeyConstraint("repository_id", "job_id", name="pk_ci_log"),
    )
    op.create_index("ix_ci_log_fetched_at", "ci_log", ["fetched_at"])
    op.create_index("ix_ci_log_head_sha", "ci_log", ["head_sha", "repository_id"])
    op.create_index("ix_ci_log_run", "ci_log", ["repository_id", "run_id"])


def _verdict() -> None:
    op.create_table(
        "ci_verdict",
        sa.Column("repository_id", BIG, nullable=False),
        sa.Column("job_id", BIG, nullable=False),
        sa.Column("ruleset", sa.Text(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("current", sa.Boolean(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("line", sa.Text(), nullable=True),
        sa.Column("line_num", BIG, nullable=True),
        sa.Column("captures", JSON, nullable=False),
        sa.Column("context", JSON, nullable=False),
        sa.Column("step", sa.Text(), nullable=True),
        sa.Column("excerpt", JSON, nullable=False),
        sa.Column("excerpt_from", BIG, nullable=True),
        sa.Column("hint", sa.Text(), nullable=True),
        sa.Column("signature", sa.Text(), nullable=True),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("change", sa.Text(), nullable=True),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("repository_id", "job_id", "ruleset", "rank", name="pk_ci_verdict"),
    )
    op.create_index(
        "ix_ci_verdict_day",
        "ci_verdict",
        ["day", "kind"],
        sqlite_where=sa.text("current = 1 AND rank = 0"),
        postgresql_where=sa.text("current AND rank = 0"),
    )
    op.create_index(
        "ix_ci_verdict_signature",
        "ci_verdict",
        ["signature", "day"],
        sqlite_where=sa.text("current = 1 AND rank = 0"),
        postgresql_where=sa.text("current AND rank = 0"),
    )


def _signature() -> None:
    op.create_table(
        "ci_signature",
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("first_at", BIG, nullable=False),
        sa.Column("last_at", BIG, nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("jobs_total", BIG, nullable=False),
        sa.Column("issue_url", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("signature", "family", name="pk_ci_signature"),
    )


def _signature_day() -> None:
    op.create_table(
        "ci_signature_day",
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("jobs", BIG, nullable=False),
        sa.Column("prs", BIG, nullable=False),
        sa.Column("trusted_jobs", BIG, nullable=False),
        sa.Column("repos", BIG, nullable=False),
        sa.PrimaryKeyConstraint("signature", "family", "day", name="pk_ci_signature_day"),
    )
    op.create_index("ix_ci_signature_day_day", "ci_signature_day", ["day", "family"])


def _ruleset() -> None:
    op.create_table(
        "ci_ruleset",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("valid", sa.Boolean(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("rules", sa.Integer(), nullable=False),
        sa.Column("loaded_at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_ci_ruleset"),
    )
    op.create_index("ix_ci_ruleset_source", "ci_ruleset", ["source", "loaded_at"])
