"""The first tables, as `python3 dev.py generate` writes them from the code until the first release."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision, down_revision, branch_labels, depends_on = "0001", None, None, None

Big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
Integer, Small, Float = sa.Integer(), sa.SmallInteger(), sa.Float(53)
Text, Boolean, Bytes = sa.Text(), sa.Boolean(), sa.LargeBinary()


def column(name: str, kind: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=True, **options)


def must(name: str, kind: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, **options)


def table(name: str, *parts: sa.schema.SchemaItem, key: list[str], **options: Any) -> None:
    op.create_table(name, *parts, sa.PrimaryKeyConstraint(*key, name=f"pk_{name}"), **options)


def index(
    name: str, table: str, *columns: Any, where: str = "", where_on_postgresql: str = "", **options: Any
) -> None:
    if where:
        options["sqlite_where"] = sa.text(where)
        options["postgresql_where"] = sa.text(where_on_postgresql or where)
    op.create_index(name, table, columns, **options)


# fmt: off
def upgrade() -> None:
    table("admin_sign_out", must("token_id", Text), must("not_before", Big), key=["token_id"])
    table(
        "allowlist_version", must("id", Big), must("digest", Text), must("source", Text),
        must("content", Text), must("valid", Boolean), column("error", Text), must("loaded_at", Big),
        column("default_events", Text), key=["id"],
    )
    table(
        "benchmark_point", must("series_id", Big), must("repository_id", Big), must("object_id", Big),
        must("day", Integer), must("at", Big), must("trusted", Boolean), must("head_sha", Text),
        must("n", Integer), column("median", Float), must("status", Text), column("min", Float),
        column("max", Float), column("stdev", Float), column("target", Float), column("extra", Json),
        key=["series_id", "repository_id", "object_id"],
    )
    index("ix_benchmark_point_day", "benchmark_point", "day")
    index("ix_benchmark_point_head_sha", "benchmark_point", "repository_id", "head_sha")
    index("ix_benchmark_point_series", "benchmark_point", "repository_id", "series_id", "at")
    index("ix_benchmark_point_source", "benchmark_point", "repository_id", "object_id")
    table(
        "benchmark_series", must("benchmark", Text), must("model", Text), must("metric", Text),
        must("device", Text), must("mode", Text), must("dtype", Text), must("backend", Text),
        must("arch", Text), must("id", Big), must("digest", Bytes),
        sa.UniqueConstraint("digest", name="uq_benchmark_series"), key=["id"], sqlite_autoincrement=True,
    )
    index("ix_benchmark_series_model", "benchmark_series", "benchmark", "model", "metric")
    table(
        "benchmark_trend", must("repository_id", Big), must("series_id", Big), must("at", Big),
        must("head_sha", Text), column("value", Float), must("status", Text), column("usual", Float),
        column("change", Float), column("step_change", Float), column("step_at", Big),
        column("step_sha", Text), must("worse", Boolean), key=["repository_id", "series_id"],
    )
    index("ix_benchmark_trend_at", "benchmark_trend", "repository_id", "at")
    table(
        "bisect", must("id", Text), must("upstream_repo", Text), must("repository_id", Big),
        must("branch", Text), must("backend", Text), must("job", Text), must("test", Text),
        must("signature", Text), must("good_sha", Text), must("bad_sha", Text), must("state", Text),
        must("why", Text), must("requested_by", Text), must("reason", Text), column("comment_on", Big),
        must("flaky_rate", Float), column("bad_signature", Text), column("bad_kind", Text),
        must("moved", Integer), must("used", Integer), column("waits_until", Big),
        column("culprit_sha", Text), column("parent_sha", Text), column("confidence", Text),
        column("suspects", Json), must("good_runs", Integer), must("bad_runs", Integer),
        column("pr_number", Big), column("author", Text), column("title", Text), column("files", Json),
        column("mended_sha", Text), must("created_at", Big), must("updated_at", Big), column("ended_at", Big),
        key=["id"],
    )
    index("ix_bisect_culprit", "bisect", "culprit_sha", "repository_id")
    index("ix_bisect_repository", "bisect", "repository_id", "created_at")
    index(
        "ux_bisect_open", "bisect", "repository_id", "branch", "backend", "job", "test", "signature",
        unique=True, where="state IN ('running', 'waiting')",
    )
    table(
        "bisect_comment", must("bisect_id", Text), must("upstream_repo", Text), must("pr_number", Big),
        column("comment_id", Big), must("digest", Text), must("writing_until", Big), must("lost_until", Big),
        key=["bisect_id"],
    )
    table(
        "bisect_step", must("bisect_id", Text), must("number", Integer), must("sha", Text),
        must("purpose", Text), column("delivery_id", Text), column("dispatch_id", Text),
        column("run_id", Big), column("from_attempt", Integer), column("tag", Text), column("outcome", Text),
        column("detail", Text), must("created_at", Big), column("sent_at", Big), column("ended_at", Big),
        key=["bisect_id", "number"],
    )
    index("ix_bisect_step_dispatch", "bisect_step", "dispatch_id")
    index("ix_bisect_step_open", "bisect_step", "bisect_id", where="outcome IS NULL")
    index("ix_bisect_step_sent", "bisect_step", "created_at")
    table(
        "branch_commit", must("repository_id", Big), must("branch", Text), must("sha", Text),
        column("parent", Text), column("replaces", Text), must("at", Big), must("title", Text),
        column("author", Text), column("pr_number", Big), must("folded", Integer), must("gone", Boolean),
        must("listed", Boolean, server_default=sa.false()), key=["repository_id", "branch", "sha"],
    )
    index("ix_branch_commit_at", "branch_commit", "repository_id", "branch", "at", "sha")
    index("ix_branch_commit_sha", "branch_commit", "sha", "repository_id")
    table(
        "branch_rule", must("repository_id", Big), must("branch", Text), column("contexts", Json),
        must("asked_at", Big), key=["repository_id", "branch"],
    )
    table(
        "check_run", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("id", Big), column("node_id", Text), column("name", Text), column("external_id", Text),
        column("head_sha", Text), column("status", Text), column("conclusion", Text),
        column("check_suite_id", Big), column("app_id", Big), column("app_slug", Text),
        column("output_title", Text), column("output_summary", Text), column("output_annotations_count", Big),
        column("pull_requests", Json), column("details_url", Text), column("html_url", Text),
        column("started_at", Big), column("completed_at", Big), column("deleted_at", Big),
        must("merge_state", Json), key=["repository_id", "id"],
    )
    index("ix_check_run_head_sha", "check_run", "head_sha")
    index("ix_check_run_in_flight", "check_run", "received_at", where="status != 'completed'")
    index("ix_check_run_repo", "check_run", sa.text("lower(repo)"), "id")
    table(
        "check_suite", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("id", Big), column("node_id", Text), column("head_branch", Text), column("head_sha", Text),
        column("status", Text), column("conclusion", Text), column("before", Text), column("after", Text),
        column("app_id", Big), column("app_slug", Text), column("pull_requests", Json),
        column("latest_check_runs_count", Big), column("created_at", Big), column("updated_at", Big),
        column("deleted_at", Big), must("merge_state", Json), key=["repository_id", "id"],
    )
    index("ix_check_suite_repo", "check_suite", sa.text("lower(repo)"), "id")
    table(
        "ci_artifact", must("repository_id", Big), must("id", Big), must("run_id", Big),
        must("run_attempt", Integer), column("job_id", Big), must("name", Text), must("kind", Text),
        must("size_in_bytes", Big), column("digest", Text), column("created_at", Big),
        column("updated_at", Big), column("expires_at", Big), must("expired", Boolean),
        must("head_sha", Text), must("trusted", Boolean), must("flags", Json), key=["repository_id", "id"],
    )
    index("ix_ci_artifact_head_sha", "ci_artifact", "head_sha", "repository_id", "id")
    index("ix_ci_artifact_name", "ci_artifact", "repository_id", "name", "id")
    index("ix_ci_artifact_run", "ci_artifact", "repository_id", "run_id", "id")
    table(
        "ci_broken", must("repository_id", Big), must("branch", Text), must("column_group", Text),
        must("broken", Integer), key=["repository_id", "branch", "column_group"],
    )
    table(
        "ci_budget", must("account", Text), must("calls", Float), must("bytes", Float), must("at", Big),
        must("minutes", Json), key=["account"],
    )
    table(
        "ci_cache_day", must("repository_id", Big), must("base_name", Text), must("day", Integer),
        must("jobs", Integer), must("seconds", Big), must("hits", Json), must("misses", Json),
        must("errors", Big), must("not_cacheable", Big), must("reasons", Json),
        key=["repository_id", "base_name", "day"],
    )
    table(
        "ci_cache_stats", must("repository_id", Big), must("object_id", Big), must("tool", Text),
        must("base_name", Text), must("day", Integer), must("at", Big), must("trusted", Boolean),
        must("head_sha", Text), must("requests", Big), must("executed", Big), must("hits", Json),
        must("misses", Json), must("errors", Big), must("not_cacheable", Big), must("reasons", Json),
        must("write_seconds", Float), must("read_seconds", Float), must("version", Text), column("raw", Json),
        key=["repository_id", "object_id", "tool"],
    )
    index("ix_ci_cache_stats_build", "ci_cache_stats", "repository_id", "base_name", "day")
    index("ix_ci_cache_stats_day", "ci_cache_stats", "day")
    table(
        "ci_cache_trend", must("repository_id", Big), must("base_name", Text), must("language", Text),
        must("at", Big), must("head_sha", Text), must("hits", Big), must("misses", Big),
        column("rate", Float), column("usual", Float), column("fell_at", Big), column("fell_sha", Text),
        key=["repository_id", "base_name", "language"],
    )
    table(
        "ci_cell", must("repository_id", Big), must("head_sha", Text), must("column_id", Big),
        must("job_id", Big), column("numbered_column_id", Big), must("run_id", Big), must("attempt", Integer),
        must("shard", Integer), must("shards", Integer), must("state", Small), must("conclusion", Small),
        column("queued_at", Big), column("started_at", Big), column("completed_at", Big),
        column("runner_label", Text), column("signature", Text), column("line", Text),
        column("tests_failed", Integer), column("failed_tests", Text), column("failure_kind", Text),
        must("held", Boolean, server_default=sa.false()), column("other_id", Text), column("url", Text),
        key=["repository_id", "head_sha", "column_id", "job_id"],
    )
    index("ix_ci_cell_job", "ci_cell", "repository_id", "job_id")
    index("ix_ci_cell_queued_at", "ci_cell", "repository_id", "queued_at")
    table(
        "ci_column", must("id", Big), must("repository_id", Big), must("workflow", Text), must("job", Text),
        must("base_name", Text), must("config", Text), must("flags", Text),
        must("source", Text, server_default=sa.text("'actions'")), column("shown_as", Text),
        must("seen", Integer, server_default=sa.text("'0'")),
        sa.UniqueConstraint("repository_id", "source", "workflow", "job", name="uq_ci_column"), key=["id"],
    )
    table(
        "ci_commit", must("repository_id", Big), must("head_sha", Text), must("mark", Big),
        column("cells", Bytes), column("outline", Bytes), key=["repository_id", "head_sha"],
    )
    table(
        "ci_day", must("repository_id", Big), must("branch", Text), must("day", Integer), must("name", Text),
        must("workflow", Text), must("cells", Text), must("seconds", Big),
        key=["repository_id", "branch", "day", "name"],
    )
    table(
        "ci_disabled_day", must("repository_id", Big), must("day", Integer), must("tests", Json),
        must("made_at", Big), key=["repository_id", "day"],
    )
    index("ix_ci_disabled_day_day", "ci_disabled_day", "day")
    table(
        "ci_disabling", must("repository_id", Big), must("number", Big), must("kind", Text),
        must("unstable", Boolean), must("title", Text), column("author", Text), column("url", Text),
        must("listed", Boolean), must("entries", Json), must("problems", Json), column("created_at", Big),
        column("updated_at", Big), key=["repository_id", "number"],
    )
    table(
        "ci_disabling_comment", must("repository_id", Big), must("number", Big), column("comment_id", Big),
        must("digest", Text), must("writing_until", Big), must("lost_until", Big),
        key=["repository_id", "number"],
    )
    table(
        "ci_fetch", must("repository_id", Big), must("kind", Text), must("object_id", Big),
        must("run_id", Big), must("run_attempt", Integer), column("job_id", Big), must("state", Text),
        must("tries", Integer), column("due_at", Big), column("size", Big), column("sha256", Text),
        column("blob", Text), column("parser", Text), column("error", Text), must("asked_at", Big),
        column("done_at", Big), key=["repository_id", "kind", "object_id"],
    )
    index("ix_ci_fetch_asked_at", "ci_fetch", "asked_at")
    index("ix_ci_fetch_blob", "ci_fetch", "blob", where="blob IS NOT NULL")
    index("ix_ci_fetch_run", "ci_fetch", "repository_id", "run_id", "kind", "object_id")
    index("ix_ci_fetch_wanted", "ci_fetch", "asked_at", where="state = 'wanted'")
    table(
        "ci_line", must("repository_id", Big), must("branch", Text), must("day", Integer),
        must("place", Integer), must("sha", Text), must("verdict", Text), column("red_seconds", Big),
        column("signal_seconds", Big), must("jobs", Integer), must("reruns", Integer), must("flaky", Integer),
        must("cancelled_seconds", Big), must("seconds", Json), column("failures", Json),
        key=["repository_id", "branch", "day", "place"],
    )
    table(
        "ci_list", must("repository_id", Big), must("name", Text), must("etag", Text), must("made_at", Big),
        must("body", Bytes), must("gzipped", Bytes), key=["repository_id", "name"],
    )
    table(
        "ci_listing", must("repository_id", Big), must("run_id", Big), must("run_attempt", Integer),
        must("passes", Integer), must("artifacts", Integer), must("state", Text), column("error", Text),
        must("at", Big), key=["repository_id", "run_id", "run_attempt"],
    )
    table(
        "ci_log", must("repository_id", Big), must("job_id", Big), must("run_id", Big),
        must("run_attempt", Integer), must("state", Text), must("bytes", Big), must("lines", Big),
        must("longest_line", Big), must("sha256", Text), column("blob", Text), column("first_at", Big),
        column("last_at", Big), must("fetched_at", Big), must("truncated", Boolean),
        must("secrets_masked", Integer), must("head_sha", Text), must("trusted", Boolean),
        column("first_error", Json), key=["repository_id", "job_id"],
    )
    index("ix_ci_log_fetched_at", "ci_log", "fetched_at")
    index("ix_ci_log_head_sha", "ci_log", "head_sha", "repository_id")
    index("ix_ci_log_run", "ci_log", "repository_id", "run_id")
    table(
        "ci_metric", must("repository_id", Big), must("object_id", Big), must("seq", Integer),
        must("metric", Text), must("day", Integer), must("at", Big), must("trusted", Boolean),
        must("config", Text), must("values", Json), must("labels", Json), must("source", Text),
        key=["repository_id", "object_id", "seq"],
    )
    index("ix_ci_metric_day", "ci_metric", "repository_id", "metric", "day")
    index("ix_ci_metric_of_day", "ci_metric", "day")
    table(
        "ci_metric_day", must("repository_id", Big), must("metric", Text), must("value_name", Text),
        must("group_key", Text), must("count", Integer), must("sum", Float), must("min", Float),
        must("max", Float), must("sample", Json), must("day", Integer),
        key=["repository_id", "metric", "day", "value_name", "group_key"],
    )
    table(
        "ci_metric_trend", must("repository_id", Big), must("metric", Text), must("value_name", Text),
        must("last_day", Integer), must("count", Big), must("recent", Float), column("before", Float),
        column("change", Float), column("since_day", Integer), must("days", Json),
        key=["repository_id", "metric", "value_name"],
    )
    index("ix_ci_metric_trend_change", "ci_metric_trend", "repository_id", "change")
    table(
        "ci_pull_closes", must("repository_id", Big), must("number", Big), must("head_sha", Text),
        must("issues", Json), key=["repository_id", "number"],
    )
    table(
        "ci_reclassified", must("repository_id", Big, autoincrement=False), must("ruleset", Text),
        must("phase", Integer), must("at", Big), must("job_id", Big), key=["repository_id"],
    )
    table(
        "ci_ruleset", must("digest", Text), must("source", Text), must("content", Text),
        must("valid", Boolean), column("error", Text), must("rules", Integer), must("loaded_at", Big),
        key=["digest"],
    )
    index("ix_ci_ruleset_source", "ci_ruleset", "source", "loaded_at")
    table(
        "ci_runner_day", must("repository_id", Big), must("label", Text), must("day", Integer),
        must("jobs", Integer), must("queue", Bytes), must("duration", Bytes),
        key=["repository_id", "label", "day"],
    )
    table(
        "ci_signature", must("signature", Text), must("family", Text), must("first_at", Big),
        must("last_at", Big), must("title", Text), must("rule", Text), must("kind", Text),
        must("jobs_total", Big), column("issue_url", Text), key=["signature", "family"],
    )
    table(
        "ci_signature_day", must("signature", Text), must("family", Text), must("day", Integer),
        must("jobs", Big), must("prs", Big), must("trusted_jobs", Big), must("repos", Big),
        key=["signature", "family", "day"],
    )
    index("ix_ci_signature_day_day", "ci_signature_day", "day", "family")
    table(
        "ci_source", must("repository_id", Big), must("object_id", Big), must("run_id", Big),
        must("run_attempt", Integer), must("job_id", Big), column("seconds", Integer), must("repo", Text),
        must("workflow", Text), must("job_name", Text), must("base_name", Text), must("config", Text),
        must("day", Integer), must("at", Big), must("trusted", Boolean), must("head_sha", Text),
        column("upstream_sha", Text), column("upstream_repo", Text), column("head_branch", Text),
        column("pr_number", Big), must("kind", Text), must("artifact", Text), must("sha256", Text),
        must("records", Integer), must("problems", Json), must("problem_count", Integer),
        must("received_at", Big), key=["repository_id", "object_id"],
    )
    index("ix_ci_source_head_sha", "ci_source", "head_sha")
    index("ix_ci_source_received_at", "ci_source", "received_at")
    index("ix_ci_source_run", "ci_source", "repository_id", "run_id")
    index("ix_ci_source_upstream_sha", "ci_source", "upstream_sha")
    table(
        "ci_storage_day", must("repository_id", Big), must("day", Integer), must("workflow", Text),
        must("artifacts", Big), must("bytes", Big), key=["repository_id", "day", "workflow"],
    )
    table("ci_unstable", must("repository_id", Big), must("name", Text), key=["repository_id", "name"])
    table(
        "ci_upload", must("id", Big), must("backend", Text), must("backend_key", Text),
        must("repository_id", Big), must("dispatch_id", Text), column("event_type", Text),
        column("commit_sha", Text), must("kind", Text), must("run_id", Text), must("run_attempt", Integer),
        must("workflow", Text), must("job", Text), must("name", Text), must("size", Big),
        must("sha256", Text), must("blob", Text), must("received_at", Big), key=["id"],
    )
    index("ix_ci_upload_backend_key", "ci_upload", "backend_key", "received_at")
    index("ix_ci_upload_dispatch_id", "ci_upload", "dispatch_id")
    table(
        "ci_verdict", must("repository_id", Big), must("job_id", Big), must("ruleset", Text),
        must("rank", Integer), must("current", Boolean), column("rule", Text), must("kind", Text),
        column("line", Text), column("line_num", Big), must("captures", Json), must("context", Json),
        column("step", Text), must("excerpt", Json), column("excerpt_from", Big), column("hint", Text),
        column("signature", Text), must("family", Text), must("day", Integer), must("trusted", Boolean),
        column("change", Text), must("at", Big), key=["repository_id", "job_id", "ruleset", "rank"],
    )
    index(
        "ix_ci_verdict_at", "ci_verdict", "repository_id", "at", "job_id", where="current = 1 AND rank = 0",
        where_on_postgresql="current AND rank = 0",
    )
    index(
        "ix_ci_verdict_day", "ci_verdict", "day", "kind", where="current = 1 AND rank = 0",
        where_on_postgresql="current AND rank = 0",
    )
    index(
        "ix_ci_verdict_repository", "ci_verdict", "repository_id", "family", where="current = 1 AND rank = 0",
        where_on_postgresql="current AND rank = 0",
    )
    index(
        "ix_ci_verdict_signature", "ci_verdict", "signature", "day", where="current = 1 AND rank = 0",
        where_on_postgresql="current AND rank = 0",
    )
    table(
        "contribution_day", must("repository_id", Big), must("day", Integer), must("pr_count", Integer),
        must("users", Json), must("new_users", Integer), must("review_hours", Json),
        must("merge_hours", Json), key=["repository_id", "day"],
    )
    table(
        "contribution_pull", must("repository_id", Big), must("number", Big), must("login", Text),
        must("state", Text), must("created_at", Big), column("day", Integer), column("merged_at", Big),
        column("reviewed_at", Big), key=["repository_id", "number"],
    )
    index("ix_contribution_pull_day", "contribution_pull", "repository_id", "day")
    index("ix_contribution_pull_login", "contribution_pull", "repository_id", "login", "day")
    index("ix_contribution_pull_waiting", "contribution_pull", "repository_id", "state", "created_at")
    table(
        "delivery", must("id", Big), must("guid", Text), must("event", Text), column("action", Text),
        column("repo", Text), column("repository_id", Big), column("installation_id", Big),
        column("app_id", Big), must("source", Text), must("received_at", Big), must("state", Text),
        must("attempts", Integer, server_default=sa.text("'0'")), must("due_at", Big), column("error", Text),
        column("headers", Text), column("codec", Text), must("body", Bytes), sa.UniqueConstraint("guid"),
        key=["id"],
    )
    index(
        "ix_delivery_of_others", "delivery", "received_at",
        where="(source NOT IN ('webhook', 'api', 'pull'))",
    )
    index("ix_delivery_parked", "delivery", "id", where="state = 'parked'")
    index("ix_delivery_pending", "delivery", "due_at", where="state = 'stored'")
    index("ix_delivery_received_at", "delivery", "received_at")
    table(
        "folded_commit", must("repository_id", Big), must("branch", Text), must("sha", Text), must("at", Big),
        must("title", Text), column("author", Text), key=["repository_id", "branch", "sha"],
    )
    table(
        "installation", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("id", Big), column("account_login", Text), column("account_id", Big),
        column("account_type", Text), column("app_id", Big), column("app_slug", Text),
        column("target_type", Text), column("target_id", Big), column("repository_selection", Text),
        column("permissions", Json), column("events", Json), column("suspended_at", Big),
        column("created_at", Big), column("updated_at", Big), column("deleted_at", Big),
        must("merge_state", Json), key=["repository_id", "id"],
    )
    index("ix_installation_repo", "installation", sa.text("lower(repo)"), "id")
    table(
        "issue", must("repository_id", Big), must("repo", Text), must("received_at", Big), must("id", Big),
        column("node_id", Text), column("number", Big), column("title", Text), column("body", Text),
        column("state", Text), column("state_reason", Text), column("user_login", Text),
        column("user_id", Big), column("author_association", Text), column("labels", Json),
        column("assignees", Json), column("milestone_title", Text), column("comments", Big),
        column("locked", Boolean), column("active_lock_reason", Text), column("html_url", Text),
        column("created_at", Big), column("updated_at", Big), column("closed_at", Big),
        column("deleted_at", Big), must("merge_state", Json), key=["repository_id", "id"],
    )
    index(
        "ix_issue_disabled", "issue", "repository_id", "title",
        where="state = 'closed' AND substr(title, 1, 9) IN ('DISABLED ')",
    )
    index(
        "ix_issue_disabling", "issue", "repository_id", "number",
        where="state = 'open' AND substr(title, 1, 9) IN ('DISABLED ', 'UNSTABLE ')",
    )
    index("ix_issue_number", "issue", "number")
    index("ix_issue_repo", "issue", sa.text("lower(repo)"), "id")
    table(
        "issue_comment", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("id", Big), column("node_id", Text), column("body", Text), column("user_login", Text),
        column("user_id", Big), column("author_association", Text), column("html_url", Text),
        column("issue_url", Text), column("created_at", Big), column("updated_at", Big),
        column("deleted_at", Big), must("merge_state", Json), key=["repository_id", "id"],
    )
    index("ix_issue_comment_repo", "issue_comment", sa.text("lower(repo)"), "id")
    table(
        "issue_label_event", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("guid", Text), column("action", Text), column("issue_id", Big), column("issue_number", Big),
        column("label_id", Big), column("label_name", Text), column("sender_login", Text),
        column("issue_updated_at", Big), column("deleted_at", Big), must("merge_state", Json),
        key=["repository_id", "guid"],
    )
    index("ix_issue_label_event_repo", "issue_label_event", sa.text("lower(repo)"), "guid")
    table(
        "missed_delivery", must("app_id", Big), must("guid", Text), must("log_id", Big), must("event", Text),
        column("repository_id", Big), must("delivered_at", Big), must("asks", Integer), must("asked_at", Big),
        must("lost", Boolean), key=["app_id", "guid"],
    )
    table(
        "notice", must("event", Text), must("at", Big), column("began_at", Big), must("heading", Text),
        must("lines", Json), must("repo", Text), must("branch", Text), must("backend", Text),
        must("oncalls", Json), must("path", Text), must("id", Text), must("audience", Text), key=["id"],
    )
    index("ix_notice_at", "notice", "audience", "at")
    index("ix_notice_backend", "notice", "audience", "backend", "at")
    index("ix_notice_branch", "notice", "audience", "repo", "branch", "at")
    table(
        "notice_sending", must("notice_id", Text), must("receiver", Text), must("state", Text),
        must("attempts", Integer), must("created_at", Big), column("ended_at", Big), column("error", Text),
        key=["notice_id", "receiver"],
    )
    index("ix_notice_sending_state", "notice_sending", "receiver", "state", "ended_at")
    index("ix_notice_sending_waiting", "notice_sending", "receiver", "created_at", where="state = 'waiting'")
    table(
        "notice_told", must("audience", Text), must("event", Text), must("key", Text),
        must("notice_id", Text), must("seen_at", Big), key=["audience", "event", "key"],
    )
    index("ix_notice_told_notice", "notice_told", "notice_id")
    table(
        "oot_approval", must("upstream_repo", Text), must("pr_number", Big), must("head_sha", Text),
        must("login", Text), must("created_at", Big), key=["upstream_repo", "pr_number", "head_sha"],
    )
    table(
        "oot_budget", must("app_id", Big), must("account", Text), must("next_write", Big),
        must("blocked_until", Big), must("pressed_until", Big), must("creations", Json),
        must("dispatches", Json), key=["app_id", "account"],
    )
    table(
        "oot_changed_files", must("upstream_repo", Text), must("pr_number", Big), must("head_sha", Text),
        must("base_ref", Text), must("paths", Json), column("complete", Boolean), must("asked_at", Big),
        key=["upstream_repo", "pr_number", "head_sha"],
    )
    table(
        "oot_check", must("external_id", Text), must("upstream_repo", Text), column("pr_number", Big),
        must("head_sha", Text), must("name", Text), column("check_run_id", Big), must("status", Text),
        column("conclusion", Text), must("digest", Text), must("created_at", Big), must("written_at", Big),
        must("writing_until", Big), must("lost_until", Big), must("label_ended", Boolean),
        must("basis", Text), key=["external_id"],
    )
    index("ix_oot_check_head", "oot_check", "head_sha")
    index("ix_oot_check_name", "oot_check", "upstream_repo", "name")
    index("ix_oot_check_pull", "oot_check", "upstream_repo", "pr_number")
    index("ix_oot_check_run", "oot_check", "check_run_id")
    index("ix_oot_check_unfinished", "oot_check", "name", "created_at", where="status != 'completed'")
    table(
        "oot_command", must("upstream_repo", Text), must("comment_id", Big), must("position", Integer),
        must("pr_number", Big), column("head_sha", Text), must("login", Text), must("verb", Text),
        must("text", Text), must("state", Text), must("answer", Text), must("delivery_id", Text),
        must("created_at", Big), key=["upstream_repo", "comment_id", "position"],
    )
    index("ix_oot_command_login", "oot_command", "login", "created_at")
    index("ix_oot_command_pull", "oot_command", "upstream_repo", "pr_number")
    table(
        "oot_comment", must("upstream_repo", Text), must("pr_number", Big), column("comment_id", Big),
        must("digest", Text), must("written_at", Big), must("writing_until", Big), must("lost_until", Big),
        key=["upstream_repo", "pr_number"],
    )
    table(
        "oot_comment_refusal", must("upstream_repo", Text), must("reason", Text), must("refused_at", Big),
        key=["upstream_repo"],
    )
    table(
        "oot_compared", must("job_key", Text), must("completed_at", Big), must("history", Text),
        column("url", Text), must("elsewhere", Boolean), key=["job_key"],
    )
    table(
        "oot_day", must("backend_key", Text), must("day", Integer), must("upstream_key", Text),
        must("event_type", Text), must("backend", Text), must("level", Integer), must("runs", Big),
        must("success", Big), must("failure", Big), must("timed_out", Big), must("cancelled", Big),
        must("skipped", Big), must("neutral", Big), must("running", Big), must("never_started", Big),
        must("not_run", Big, server_default=sa.text("'0'")), must("not_dispatched", Big),
        must("superseded", Big), must("infra", Big, server_default=sa.text("'0'")), must("execution", Bytes),
        must("queue", Bytes), must("whole", Bytes), must("hours", Json), must("last_at", Big),
        must("written_at", Big), key=["backend_key", "day", "upstream_key", "event_type"],
    )
    index("ix_oot_day_day", "oot_day", "day", "written_at", "backend_key")
    table(
        "oot_dispatch", must("id", Text), must("delivery_id", Text), must("source_guid", Text),
        must("upstream_repo", Text), must("event_type", Text), column("action", Text),
        column("pr_number", Big), column("head_sha", Text), column("base_sha", Text),
        column("base_ref", Text), column("ref", Text), column("labels", Json), must("backend", Text),
        must("backend_key", Text), must("level", Integer), column("device", Text), must("state", Text),
        must("attempts", Integer), must("created_at", Big), column("dispatched_at", Big),
        column("heard_at", Big), must("token_jti", Text), column("answers", Text), column("run_id", Text),
        column("error", Text), sa.UniqueConstraint("delivery_id", "backend_key", name="ux_oot_dispatch"),
        key=["id"],
    )
    index(
        "ix_oot_dispatch_awaited", "oot_dispatch", "state", "created_at", "id",
        where="heard_at IS NULL AND level > 1 AND oot_dispatch.action IS NOT 'closed'",
        where_on_postgresql="heard_at IS NULL AND level > 1 AND action IS DISTINCT FROM 'closed'",
    )
    index(
        "ix_oot_dispatch_begun", "oot_dispatch", "backend_key", "dispatched_at",
        where="dispatched_at IS NOT NULL",
    )
    index("ix_oot_dispatch_head", "oot_dispatch", "head_sha")
    index("ix_oot_dispatch_pull", "oot_dispatch", "upstream_repo", "pr_number")
    index("ix_oot_dispatch_source", "oot_dispatch", "source_guid")
    index("ix_oot_dispatch_state", "oot_dispatch", "state", "created_at")
    index(
        "ix_oot_dispatch_unanswered", "oot_dispatch", "backend_key", "created_at",
        where="state IN ('failed', 'never_started', 'not_installed')",
    )
    index("ix_oot_dispatch_waiting", "oot_dispatch", "backend_key", "created_at", where="state = 'waiting'")
    table("oot_failure_kind", must("job_key", Text), must("kind", Text), key=["job_key"])
    table(
        "oot_ignore", must("upstream_repo", Text), must("pr_number", Big), must("head_sha", Text),
        column("base_ref", Text), must("backend_key", Text), must("login", Text), must("reason", Text),
        must("created_at", Big), key=["upstream_repo", "pr_number", "head_sha", "backend_key"],
    )
    table(
        "oot_job_name", must("backend_key", Text), must("upstream_key", Text), must("workflow", Text),
        must("job", Text), must("backend", Text), must("last_at", Big),
        key=["backend_key", "upstream_key", "workflow", "job"],
    )
    index("ix_oot_job_name_newest", "oot_job_name", "last_at")
    table(
        "oot_key", must("id", Text), must("repo", Text), must("digest", Bytes), must("note", Text),
        must("created_at", Big), column("used_at", Big), column("revoked_at", Big), key=["id"],
    )
    table(
        "oot_level", must("backend_key", Text), must("since", Big), must("level", Integer),
        key=["backend_key", "since"],
    )
    table(
        "oot_mention", must("upstream_repo", Text), must("pr_number", Big), must("head_sha", Text),
        must("backend_key", Text), must("over", Boolean), must("created_at", Big),
        key=["upstream_repo", "pr_number", "head_sha", "backend_key"],
    )
    table(
        "oot_merge_base", must("upstream_repo", Text), must("head_sha", Text), must("base_ref", Text),
        column("merge_base", Text), column("committed_at", Big), must("asked_at", Big),
        key=["upstream_repo", "head_sha", "base_ref"],
    )
    table(
        "oot_merge_group", must("upstream_repo", Text), must("head_sha", Text), column("base_sha", Text),
        must("pr_number", Big), must("created_at", Big), column("ended_at", Big), column("base_ref", Text),
        column("merged", Boolean), column("base_known", Boolean), column("asked_at", Big),
        key=["upstream_repo", "head_sha"],
    )
    index("ix_oot_merge_group_pull", "oot_merge_group", "upstream_repo", "pr_number")
    table(
        "oot_ping", must("id", Text), must("backend", Text), must("backend_key", Text),
        must("requested_by", Text), must("cause", Text), must("created_at", Big), must("token_jti", Text),
        must("state", Text), column("error", Text), column("sent_at", Big), column("run_id", Text),
        column("started_at", Big), column("completed_at", Big), column("conclusion", Text),
        column("refused_at", Big), column("refusal", Text),
        sa.UniqueConstraint("cause", name="ux_oot_ping_cause"), key=["id"],
    )
    index("ix_oot_ping_backend", "oot_ping", "backend_key", "created_at")
    table(
        "oot_rate", must("caller", Text), must("second", Big), must("accepted", Integer),
        key=["caller", "second"],
    )
    table(
        "oot_rerun", must("dispatch_id", Text), must("run_id", Text), must("from_attempt", Integer),
        must("scope", Text), must("state", Text), must("cause", Text), must("created_at", Big),
        key=["dispatch_id", "run_id", "from_attempt"],
    )
    index("ix_oot_rerun_awaited", "oot_rerun", "created_at", where="state IN ('asked', 'sent')")
    table(
        "oot_run", must("backend_key", Text), must("run_id", Text), must("run_attempt", Integer),
        must("status", Text), must("checked_at", Big), key=["backend_key", "run_id", "run_attempt"],
    )
    table(
        "oot_tree", must("upstream_repo", Text), must("head_sha", Text), must("tree_sha", Text),
        must("asked_at", Big), key=["upstream_repo", "head_sha"],
    )
    table(
        "oot_workflow_job", must("job_key", Text), column("dispatch_id", Text), must("status", Text),
        column("conclusion", Text), must("downstream_repo", Text), must("upstream_repo", Text),
        column("pr_number", Big), column("head_sha", Text), must("delivery_id", Text),
        column("workflow_run_url", Text), must("workflow_name", Text), must("job_name", Text),
        column("check_run_id", Text), column("reporter_check_run_id", Text), must("run_id", Text),
        must("run_attempt", Integer), column("queue_time", Float), column("execution_time", Float),
        column("started_at", Big), column("completed_at", Big), column("total_tests", Big),
        column("passed_tests", Big), column("failed_tests", Big), column("skipped_tests", Big),
        column("failed_tests_json", Json), column("reported_started_at", Big),
        column("reported_completed_at", Big), column("artifact_url", Text), column("environment", Json),
        column("triage_verdict", Json), must("downstream_repo_level", Integer), must("event_type", Text),
        must("source", Text), must("flags", Json), must("received_at", Big), must("updated_at", Big),
        key=["job_key"],
    )
    index("ix_oot_workflow_job_backend", "oot_workflow_job", sa.text("lower(downstream_repo)"), "received_at")
    index("ix_oot_workflow_job_dispatch", "oot_workflow_job", "dispatch_id")
    index(
        "ix_oot_workflow_job_failed", "oot_workflow_job", sa.text("lower(downstream_repo)"), "received_at",
        where="failed_tests_json IS NOT NULL",
    )
    index("ix_oot_workflow_job_head", "oot_workflow_job", "head_sha", sa.text("lower(downstream_repo || '')"))
    index(
        "ix_oot_workflow_job_name", "oot_workflow_job", sa.text("lower(downstream_repo)"), "job_name",
        "workflow_name", "completed_at", "pr_number",
    )
    index("ix_oot_workflow_job_no_commit", "oot_workflow_job", "delivery_id", where="head_sha IS NULL")
    index("ix_oot_workflow_job_open", "oot_workflow_job", "started_at", where="status = 'in_progress'")
    index("ix_oot_workflow_job_pull", "oot_workflow_job", "upstream_repo", "pr_number")
    index(
        "ix_oot_workflow_job_run", "oot_workflow_job", "run_id", "job_name", "workflow_name", "delivery_id",
        "run_attempt",
    )
    table(
        "pinned_repository", must("name", Text), must("repository_id", Big), must("pinned_at", Big),
        column("moved_to", Text), column("unreachable", Text), key=["name"],
    )
    table(
        "provider_agent", must("organization", Text), must("agent_id", Text), column("name", Text),
        must("queue", Text), column("tags", Json), must("state", Text), must("at", Big),
        must("version", Text), key=["organization", "agent_id"],
    )
    index("ix_provider_agent_at", "provider_agent", "organization", "at")
    table(
        "provider_job", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("provider", Text), must("project", Text), column("head_sha", Text), column("branch", Text),
        column("tag", Text), column("pr_number", Big), column("status", Text), column("conclusion", Text),
        column("raw_state", Text), column("url", Text), column("created_at", Big), column("started_at", Big),
        column("completed_at", Big), column("updated_at", Big), column("delivery_guid", Text),
        must("job_id", Text), column("pipeline_id", Text), column("workflow_id", Text),
        column("workflow_name", Text), column("job_name", Text), column("number", Big),
        column("attempt", Big), column("shard", Big), column("shards", Big), column("runner", Text),
        column("runnable_at", Big), column("exit_status", Big), column("soft_failed", Boolean),
        column("retried_in_job_id", Text), column("reason", Text), column("failure_kind", Text),
        column("log_url", Text), column("deleted_at", Big), must("merge_state", Json),
        key=["repository_id", "provider", "project", "job_id"],
    )
    index(
        "ix_provider_job_open_status", "provider_job", "received_at",
        where="provider = 'status' AND status != 'completed'",
    )
    index("ix_provider_job_received_at", "provider_job", "received_at")
    index("ix_provider_job_repo", "provider_job", sa.text("lower(repo)"), "received_at")
    table(
        "provider_run", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("provider", Text), must("project", Text), column("head_sha", Text), column("branch", Text),
        column("tag", Text), column("pr_number", Big), column("status", Text), column("conclusion", Text),
        column("raw_state", Text), column("url", Text), column("created_at", Big), column("started_at", Big),
        column("completed_at", Big), column("updated_at", Big), column("delivery_guid", Text),
        must("run_id", Text), column("pipeline_id", Text), column("name", Text), column("number", Big),
        column("source", Text), column("deleted_at", Big), must("merge_state", Json),
        key=["repository_id", "provider", "project", "run_id"],
    )
    index("ix_provider_run_received_at", "provider_run", "received_at")
    index("ix_provider_run_repo", "provider_run", sa.text("lower(repo)"), "received_at")
    table(
        "pull_head", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("number", Big), must("head_sha", Text), column("head_ref", Text), column("base_sha", Text),
        column("base_ref", Text), column("updated_at", Big), column("deleted_at", Big),
        must("merge_state", Json), key=["repository_id", "number", "head_sha"],
    )
    index("ix_pull_head_head_sha", "pull_head", "head_sha")
    index("ix_pull_head_repo", "pull_head", sa.text("lower(repo)"), "number")
    table(
        "pull_label_event", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("guid", Text), column("action", Text), column("pull_request_id", Big),
        column("pull_request_number", Big), column("pull_request_head_sha", Text), column("label_id", Big),
        column("label_name", Text), column("sender_login", Text), column("pull_request_updated_at", Big),
        column("deleted_at", Big), must("merge_state", Json), key=["repository_id", "guid"],
    )
    index("ix_pull_label_event_number", "pull_label_event", "pull_request_number")
    index("ix_pull_label_event_repo", "pull_label_event", sa.text("lower(repo)"), "guid")
    table(
        "pull_request", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("id", Big), column("node_id", Text), column("number", Big), column("title", Text),
        column("body", Text), column("state", Text), column("draft", Boolean), column("locked", Boolean),
        column("user_login", Text), column("user_id", Big), column("author_association", Text),
        column("labels", Json), column("assignees", Json), column("requested_reviewers", Json),
        column("milestone_title", Text), column("head_sha", Text), column("head_ref", Text),
        column("head_repo_full_name", Text), column("head_repo_id", Big), column("base_sha", Text),
        column("base_ref", Text), column("merged", Boolean), column("merge_commit_sha", Text),
        column("merged_by_login", Text), column("comments", Big), column("review_comments", Big),
        column("commits", Big), column("additions", Big), column("deletions", Big),
        column("changed_files", Big), column("html_url", Text), column("created_at", Big),
        column("updated_at", Big), column("closed_at", Big), column("merged_at", Big),
        column("deleted_at", Big), must("merge_state", Json), key=["repository_id", "id"],
    )
    index(
        "ix_pull_request_demotes", "pull_request", "repository_id", "head_ref",
        where="state = 'open' AND substr(head_ref, 1, 14) = 'crcr-demotion/'",
    )
    index("ix_pull_request_head_sha", "pull_request", "head_sha")
    index("ix_pull_request_number", "pull_request", "number")
    index("ix_pull_request_open", "pull_request", "number", where="state = 'open'")
    index("ix_pull_request_repo", "pull_request", sa.text("lower(repo)"), "id")
    table(
        "pull_review", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("id", Big), column("node_id", Text), column("body", Text), column("state", Text),
        column("user_login", Text), column("user_id", Big), column("author_association", Text),
        column("commit_id", Text), column("html_url", Text), column("pull_request_url", Text),
        column("submitted_at", Big), column("updated_at", Big), column("deleted_at", Big),
        must("merge_state", Json), key=["repository_id", "id"],
    )
    index("ix_pull_review_pull_request_url", "pull_review", "pull_request_url")
    index("ix_pull_review_repo", "pull_review", sa.text("lower(repo)"), "id")
    table(
        "pull_review_comment", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("id", Big), column("node_id", Text), column("pull_request_review_id", Big), column("body", Text),
        column("path", Text), column("line", Big), column("side", Text), column("user_login", Text),
        column("user_id", Big), column("author_association", Text), column("commit_id", Text),
        column("original_commit_id", Text), column("in_reply_to_id", Big), column("diff_hunk", Text),
        column("html_url", Text), column("pull_request_url", Text), column("created_at", Big),
        column("updated_at", Big), column("deleted_at", Big), must("merge_state", Json),
        key=["repository_id", "id"],
    )
    index("ix_pull_review_comment_repo", "pull_review_comment", sa.text("lower(repo)"), "id")
    table(
        "push", must("repository_id", Big), must("repo", Text), must("received_at", Big), must("guid", Text),
        column("ref", Text), column("before", Text), column("after", Text), column("created", Boolean),
        column("deleted", Boolean), column("forced", Boolean), column("base_ref", Text),
        column("compare", Text), column("commits", Json), column("head_commit_id", Text),
        column("head_commit_message", Text), column("head_commit_timestamp", Big),
        column("pusher_name", Text), column("sender_login", Text), column("deleted_at", Big),
        must("merge_state", Json), key=["repository_id", "guid"],
    )
    index("ix_push_after", "push", "after")
    index("ix_push_guid", "push", "guid")
    index("ix_push_repo", "push", sa.text("lower(repo)"), "guid")
    table(
        "repository", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("id", Big), column("node_id", Text), column("name", Text), column("full_name", Text),
        column("private", Boolean), column("owner_login", Text), column("owner_id", Big),
        column("fork", Boolean), column("description", Text), column("archived", Boolean),
        column("disabled", Boolean), column("visibility", Text), column("default_branch", Text),
        column("language", Text), column("topics", Json), column("html_url", Text), column("created_at", Big),
        column("updated_at", Big), column("pushed_at", Big), column("deleted_at", Big),
        must("merge_state", Json), key=["repository_id", "id"],
    )
    index("ix_repository_repo", "repository", sa.text("lower(repo)"), "id")
    table("repository_name", must("repository_id", Big), must("name", Text), key=["repository_id", "name"])
    index("ix_repository_name_name", "repository_name", "name")
    table(
        "running_listing", must("repository_id", Big), must("run_id", Big), must("run_attempt", Integer),
        must("at", Big), key=["repository_id", "run_id", "run_attempt"],
    )
    index("ix_running_listing_at", "running_listing", "at")
    table("schema_support", must("oldest", Text), key=["oldest"])
    table("secret", must("name", Text), must("value", Bytes), key=["name"])
    table(
        "sink_mark", must("sink", Text), must("what", Text), must("key", Text), must("since", Big),
        must("generation", Integer), key=["sink", "what", "key"], sqlite_with_rowid=False,
    )
    index("ix_sink_mark_since", "sink_mark", "sink", "what", "since", "key")
    table(
        "sink_refused", must("sink", Text), must("what", Text), must("key", Text), must("error", Text),
        must("at", Big), key=["sink", "what", "key"],
    )
    table(
        "sink_repository", must("sink", Text), must("repository_id", Big), column("withdrawn_at", Big),
        must("deleted", Boolean), key=["sink", "repository_id"],
    )
    table(
        "sink_state", must("sink", Text), must("what", Text), must("paused", Boolean),
        column("stopped", Text), must("due_at", Big), must("failures", Integer), column("error", Text),
        must("run", Text), must("version", Big), column("sent_at", Big), must("sent", Big),
        must("began_at", Big), column("filled_from", Big), column("filled_after", Text), must("filled", Big),
        key=["sink", "what"],
    )
    table(
        "stable_push", must("repository_id", Big), must("branch", Text), must("sha", Text),
        must("committed_at", Big), must("title", Text), must("jobs_passed", Integer), must("day", Integer),
        must("at", Big), key=["repository_id", "branch", "sha"],
    )
    index("ix_stable_push_at", "stable_push", "repository_id", "at")
    index("ix_stable_push_day", "stable_push", "day")
    table(
        "sweep", must("app_id", Big), must("name", Text), must("created_at", Big), column("tried_at", Big),
        column("reached", Big), column("finished_at", Big), must("found", Big), key=["app_id", "name"],
    )
    table(
        "task", must("id", Big), must("kind", Text), must("key", Text), must("state", Text),
        must("created_at", Big), must("due_at", Big), must("attempts", Integer), column("owner", Text),
        column("lease_until", Big), column("finished_at", Big), column("error", Text), column("cause", Text),
        must("background", Boolean, server_default=sa.false()), key=["id"],
    )
    index("ix_task_dead", "task", "kind", "key", where="state = 'dead'")
    index("ix_task_due", "task", "due_at", where="state = 'waiting'")
    index(
        "ix_task_due_foreground", "task", "due_at", where="state = 'waiting' AND background = 0",
        where_on_postgresql="state = 'waiting' AND background = false",
    )
    index("ix_task_state", "task", "state", "id")
    index("ux_task_running", "task", "kind", "key", unique=True, where="state = 'running'")
    index("ux_task_waiting", "task", "kind", "key", unique=True, where="state = 'waiting'")
    table(
        "td_miss", must("repository_id", Big), must("pr_number", Big), must("test_id", Big),
        must("file", Text), must("head_sha", Text), must("run_id", Big), must("at", Big),
        must("left_out_run_id", Big), must("day", Integer), key=["repository_id", "pr_number", "test_id"],
    )
    index("ix_td_miss_day", "td_miss", "day")
    index("ix_td_miss_run", "td_miss", "repository_id", "run_id")
    table(
        "test", must("id", Big), must("repository_id", Big), must("class_id", Big), must("digest", Bytes),
        must("canonical", Big), must("name", Text), column("declared_name", Text), column("language", Text),
        must("first_at", Big), must("last_at", Big), column("trusted_first_at", Big),
        column("trusted_last_at", Big), sa.UniqueConstraint("repository_id", "digest", name="uq_test"),
        key=["id"], sqlite_autoincrement=True,
    )
    index("ix_test_canonical", "test", "canonical")
    index("ix_test_class_id", "test", "class_id", "id")
    index("ix_test_name", "test", "name", postgresql_ops={"name": "text_pattern_ops"})
    table(
        "test_class", must("id", Big), must("repository_id", Big), must("file", Text), must("suite", Text),
        must("last_at", Big), sa.UniqueConstraint("repository_id", "file", "suite", name="uq_test_class"),
        key=["id"], sqlite_autoincrement=True,
    )
    table(
        "test_day", must("repository_id", Big), must("page", Big), must("day", Integer),
        must("counts", Bytes), key=["repository_id", "page", "day"],
    )
    index("ix_test_day_day", "test_day", "day")
    table(
        "test_env", must("id", Big), must("digest", Bytes), must("os", Text), must("arch", Text),
        must("accelerator", Text), must("accelerator_version", Text), must("device_name", Text),
        must("device_count", Integer), must("python", Text), must("build", Text), must("config", Text),
        must("env_group", Text), sa.UniqueConstraint("digest"), key=["id"],
    )
    table(
        "test_exclusion", must("repository_id", Big), must("run_id", Big), must("run_attempt", Integer),
        must("job_id", Big), must("object_id", Big), must("files", Json), must("received_at", Big),
        key=["repository_id", "run_id", "run_attempt", "job_id", "object_id"],
    )
    index("ix_test_exclusion_received_at", "test_exclusion", "received_at")
    table(
        "test_failure", must("generation", Big), must("test_id", Big), must("invoking_file", Text),
        must("outcome", Small), must("flaky", Boolean), must("attempts", Integer),
        must("failed_attempts", Integer), column("time_ms", Big), must("type", Text), must("message", Text),
        must("stack", Text), must("output", Text), column("source_file", Text), column("line", Integer),
        column("signature", Text), column("verdict", Text), column("evidence", Json),
        column("properties", Json), must("repository_id", Big), must("head_sha", Text),
        must("trusted", Boolean), must("at", Big), key=["generation", "test_id", "invoking_file"],
    )
    index("ix_test_failure_at", "test_failure", "repository_id", "at")
    index("ix_test_failure_head_sha", "test_failure", "head_sha")
    index("ix_test_failure_signature", "test_failure", "signature", "at")
    index("ix_test_failure_test_id", "test_failure", "test_id", "at")
    table(
        "test_job", must("repository_id", Big), must("run_id", Big), must("run_attempt", Integer),
        must("job_id", Big), must("generation", Big), must("head_sha", Text), column("upstream_sha", Text),
        column("upstream_repo", Text), column("backend", Text), column("dispatch_id", Text),
        column("head_branch", Text), column("event", Text), must("trusted", Boolean),
        column("pr_number", Big), must("env_id", Big), must("workflow", Text), must("name", Text),
        must("family", Text), must("base_name", Text), must("config", Text), column("shard", Integer),
        column("shards", Integer), must("rerun_disabled", Boolean), must("tests", Integer),
        must("passed", Integer), must("failed", Integer), must("errors", Integer), must("skipped", Integer),
        must("xfailed", Integer), must("xpassed", Integer), must("flaky", Integer), must("crashed", Integer),
        must("left_out", Integer), must("time_ms", Big), must("files", Integer),
        must("partial", Boolean, server_default=sa.false()), column("flags", Json),
        column("properties", Json), must("unreadable", Json), column("notes", Json), must("at", Big),
        must("received_at", Big), must("counted", Big), column("counted_day", Integer),
        column("counted_group", Text), column("counted_block", Bytes), column("block", Bytes),
        key=["repository_id", "run_id", "run_attempt", "job_id"],
    )
    index("ix_test_job_at", "test_job", "at")
    index(
        "ix_test_job_family", "test_job", "repository_id", "family", "at",
        where="trusted = 1 AND rerun_disabled = 0", where_on_postgresql="trusted AND NOT rerun_disabled",
    )
    index("ix_test_job_generation", "test_job", "generation", unique=True)
    index("ix_test_job_head_sha", "test_job", "repository_id", "head_sha")
    index(
        "ix_test_job_uncounted", "test_job", "repository_id", "at",
        where="trusted = 1 AND rerun_disabled = 0 AND counted != generation OR NOT (trusted = 1 AND rerun_disabled = 0) AND counted != 0",
        where_on_postgresql="trusted AND NOT rerun_disabled AND counted != generation OR NOT (trusted AND NOT rerun_disabled) AND counted != 0",
    )
    index("ix_test_job_upstream_sha", "test_job", "upstream_sha")
    table(
        "test_loss", must("repository_id", Big), must("run_id", Big), must("family", Text),
        must("class_id", Big), must("kind", Text), column("backend", Text), must("head_sha", Text),
        must("base_sha", Text), must("tests_before", Integer), must("tests", Integer),
        must("skipped_before", Integer), must("skipped", Integer), must("gone", Integer),
        must("examples", Json), must("at", Big),
        key=["repository_id", "run_id", "family", "class_id", "kind"],
    )
    index("ix_test_loss_at", "test_loss", "repository_id", "at")
    index("ix_test_loss_head_sha", "test_loss", "head_sha")
    table(
        "test_part", must("repository_id", Big), must("run_id", Big), must("run_attempt", Integer),
        must("job_id", Big), must("object_id", Big), must("kind", Text), must("name", Text),
        column("blob", Text), must("unreadable", Json), column("notes", Json), must("received_at", Big),
        must("rules", Integer, server_default=sa.text("'0'")), column("told", Json),
        key=["repository_id", "run_id", "run_attempt", "job_id", "object_id"],
    )
    index("ix_test_part_object", "test_part", "repository_id", "object_id")
    index("ix_test_part_received_at", "test_part", "received_at")
    table(
        "test_quota", must("repository_id", Big), must("day", Integer), must("stored", Integer),
        must("bytes", Big), key=["repository_id", "day"],
    )
    table(
        "test_rerun", must("generation", Big), must("name", Text), must("suite", Text), must("file", Text),
        must("green", Integer), must("red", Integer), must("flaky", Boolean), must("repository_id", Big),
        must("trusted", Boolean), must("platforms", Json), must("at", Big),
        key=["generation", "name", "suite", "file"],
    )
    index("ix_test_rerun_at", "test_rerun", "repository_id", "at")
    table("test_rerun_job", must("generation", Big, autoincrement=False), must("at", Big), key=["generation"])
    table(
        "test_state", must("repository_id", Big), must("test_id", Big), must("env_group", Text),
        must("state", Text), must("since", Big), must("evidence", Json), column("issue", Text),
        must("by", Text), must("at", Big), key=["repository_id", "test_id", "env_group"],
    )
    index("ix_test_state_state", "test_state", "repository_id", "state", "since")
    table(
        "test_summary", must("generation", Big), must("class_id", Big), must("invoking_file", Text),
        must("at", Big), must("tests", Integer), must("failures", Integer), must("errors", Integer),
        must("skipped", Integer), must("successes", Integer), must("flaky", Integer), must("time_ms", Big),
        key=["generation", "class_id", "invoking_file"],
    )
    index("ix_test_summary_class_id", "test_summary", "class_id", "at")
    table(
        "test_time", must("repository_id", Big), must("base_name", Text), must("config", Text),
        must("files", Bytes), must("classes", Bytes), must("at", Big),
        key=["repository_id", "base_name", "config"],
    )
    table(
        "test_time_source", must("repository_id", Big, autoincrement=False), must("digest", Text),
        must("at", Big), key=["repository_id"],
    )
    table(
        "trunk_branch", must("repository_id", Big), must("branch", Text), must("pushed_at", Big),
        must("deleted_at", Big), key=["repository_id", "branch"],
    )
    table(
        "trunk_event", must("repository_id", Big), must("branch", Text), must("name", Text),
        must("first_bad", Text), must("state_after", Text), must("state_before", Text),
        column("last_good", Text), column("signature", Text), column("at", Big),
        key=["repository_id", "branch", "name", "first_bad", "state_after"],
    )
    index("ix_trunk_event_at", "trunk_event", "repository_id", "branch", "at")
    table(
        "utilization_day", must("repository_id", Big), must("kind", Text), must("span", Integer),
        must("day", Integer), must("group_key", Text), must("parent", Text), must("trusted", Boolean),
        must("jobs", Integer), must("records", Big), must("histograms", Bytes), must("cpu_sum", Big),
        must("mem_sum", Big), must("gpu_sum", Big), must("gpu_bw_sum", Big), must("gpu_alloc_sum", Big),
        must("idle_gpu_s", Big), must("gpu_s", Big), must("seconds", Json),
        key=["repository_id", "kind", "span", "day", "group_key", "parent", "trusted"],
    )
    index("ix_utilization_day_day", "utilization_day", "day")
    table(
        "utilization_job", must("repository_id", Big), must("run_id", Big), must("run_attempt", Integer),
        must("job_id", Big), must("repo", Text), must("workflow_name", Text), must("job_name", Text),
        must("base_name", Text), must("config", Text), must("runner_label", Text), must("head_sha", Text),
        must("head_branch", Text), must("trusted", Boolean), must("source_id", Big), must("digest", Text),
        must("status", Text), must("reason", Text), must("flags", Json), column("collect_interval", Float),
        column("model_version", Text), column("gpu_count", Integer), column("cpu_count", Integer),
        column("gpu_type", Text), must("start_at", Big), must("end_at", Big), must("records", Integer),
        must("error_records", Integer), column("cpu_avg", Float), column("cpu_p90", Float),
        column("cpu_max", Float), column("mem_avg", Float), column("mem_p90", Float),
        column("mem_max", Float), column("gpu_avg", Float), column("gpu_p90", Float),
        column("gpu_max", Float), column("gpu_bw_avg", Float), column("gpu_bw_p90", Float),
        column("gpu_bw_max", Float), column("gpu_alloc_avg", Float), column("gpu_alloc_p90", Float),
        column("gpu_alloc_max", Float), must("observed_s", Float), must("idle_gpu_s", Float),
        must("gpu_s", Float), must("no_data_s", Float), must("saturated_s", Float), must("oom_risk", Boolean),
        column("peak", Json), must("segments", Json), must("histograms", Bytes), must("totals", Json),
        must("machine_s", Big), must("day", Integer), column("blob", Text), must("received_at", Big),
        key=["repository_id", "run_id", "run_attempt", "job_id"],
    )
    index("ix_utilization_job_day", "utilization_job", "day")
    index("ix_utilization_job_head_sha", "utilization_job", "head_sha", "repository_id")
    index("ix_utilization_job_job", "utilization_job", "repository_id", "job_id")
    index("ix_utilization_job_newest", "utilization_job", "repository_id", "received_at")
    index("ix_utilization_job_run", "utilization_job", "run_id", "run_attempt")
    table(
        "word", must("kind", Text), must("word", Bytes), must("title_id", Big),
        key=["kind", "word", "title_id"],
    )
    table(
        "word_title", must("id", Big), must("kind", Text), must("repository_id", Big), must("ref", Text),
        must("text", Text), sa.UniqueConstraint("kind", "repository_id", "ref", name="uq_word_title"),
        key=["id"],
    )
    table(
        "workflow_job", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("id", Big), column("run_id", Big), column("run_attempt", Big), column("node_id", Text),
        column("name", Text), column("workflow_name", Text), column("status", Text),
        column("conclusion", Text), column("head_sha", Text), column("head_branch", Text),
        column("labels", Json), column("runner_id", Big), column("runner_name", Text),
        column("runner_group_id", Big), column("runner_group_name", Text), column("steps", Json),
        column("html_url", Text), column("created_at", Big), column("started_at", Big),
        column("completed_at", Big), column("deleted_at", Big), must("merge_state", Json),
        key=["repository_id", "id"],
    )
    index("ix_workflow_job_head_sha", "workflow_job", "head_sha")
    index("ix_workflow_job_in_flight", "workflow_job", "received_at", where="status != 'completed'")
    index("ix_workflow_job_repo", "workflow_job", sa.text("lower(repo)"), "id")
    index("ix_workflow_job_run", "workflow_job", "run_id", "repository_id")
    table(
        "workflow_run", must("repository_id", Big), must("repo", Text), must("received_at", Big),
        must("id", Big), must("run_attempt", Big), column("node_id", Text), column("name", Text),
        column("display_title", Text), column("path", Text), column("event", Text), column("status", Text),
        column("conclusion", Text), column("workflow_id", Big), column("check_suite_id", Big),
        column("run_number", Big), column("head_branch", Text), column("head_sha", Text),
        column("head_repository_full_name", Text), column("head_repository_id", Big),
        column("actor_login", Text), column("triggering_actor_login", Text), column("pull_requests", Json),
        column("html_url", Text), column("created_at", Big), column("updated_at", Big),
        column("run_started_at", Big), column("deleted_at", Big), must("merge_state", Json),
        key=["repository_id", "id", "run_attempt"],
    )
    index("ix_workflow_run_head_sha", "workflow_run", "head_sha")
    index("ix_workflow_run_id", "workflow_run", "id")
    index("ix_workflow_run_in_flight", "workflow_run", "received_at", where="status != 'completed'")
    index("ix_workflow_run_received_at", "workflow_run", "received_at")
    index("ix_workflow_run_repo", "workflow_run", sa.text("lower(repo)"), "id")
    op.execute("INSERT INTO schema_support (oldest) VALUES ('0001')")
