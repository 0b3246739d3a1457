"""Every table has an export, or a reason why it has none: whoever adds one says which."""

from __future__ import annotations

from pathlib import Path

import bot.db.installation
from bot.core.feature import import_tables, load_each
from bot.db.rows import metadata
from bot.features import FEATURES

DOCUMENT = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text()
EXPORTS = [export for found in load_each(FEATURES, "exports") for export in found]
# they leave with the rows of another table
PARTS = {
    "benchmark_point": "benchmark_records", "benchmark_series": "benchmark_records", "bisect_step": "bisects",
    "ci_cache_stats": "sccache_stats", "ci_metric": "ossci_uploaded_metrics", "repository_name": "repository",
    "test": "test_run", "test_class": "test_run", "test_env": "test_jobs", "test_failure": "failed_test_runs",
    "test_rerun": "rerun_disabled_tests", "test_summary": "test_run_summary",
}  # fmt: skip
# what rows that leave add up to, or are made of: a column store counts by itself
MADE_OF_OTHERS = {
    "benchmark_trend", "branch_commit", "ci_broken", "ci_cache_day", "ci_cache_trend", "ci_cell", "ci_commit", "ci_day",
    "ci_metric_day", "ci_metric_trend", "ci_pull_closes", "ci_runner_day", "ci_signature", "ci_signature_day",
    "ci_unstable", "folded_commit", "oot_compared", "oot_day", "oot_failure_kind", "oot_job_name", "oot_level", "oot_rate",
    "oot_run", "oot_tree", "oot_changed_files", "oot_merge_base", "oot_merge_group", "test_day", "test_time", "trunk_branch",
    "utilization_day", "word", "word_title",
}  # fmt: skip
# what the bot remembers of its own work: what is to be done, was asked for, was said, who may do what
OWN_WORK = {
    "admin_sign_out", "allowlist_version", "bisect_comment", "branch_rule", "ci_budget", "ci_disabling_comment",
    "ci_fetch", "ci_listing", "ci_reclassified", "ci_ruleset", "ci_storage_day", "ci_upload",
    "missed_delivery", "notice", "notice_sending", "notice_told", "oot_approval", "oot_check", "oot_command",
    "oot_budget", "oot_comment", "oot_comment_refusal", "oot_dispatch", "oot_ignore", "oot_key", "oot_mention", "oot_ping",
    "oot_rerun", "pinned_repository", "running_listing", "sink_mark", "sink_refused", "sink_repository", "sink_state",
    "schema_support", "secret", "sweep", "task", "test_part", "test_quota", "test_rerun_job", "test_time_source",
}  # fmt: skip


def tables():
    assert bot.db.installation, "importing it adds its table"
    import_tables(FEATURES)
    return set(metadata.tables)


def test_every_table_leaves_or_has_a_reason_not_to():
    exported = {export.table.name for export in EXPORTS}
    assert set(PARTS.values()) <= {export.name for export in EXPORTS}
    reasons = PARTS.keys() | MADE_OF_OTHERS | OWN_WORK
    assert tables() - exported - reasons == set(), "say how it leaves, or why it does not"
    assert reasons - tables() == set(), "there is no such table any more"


def test_every_export_is_in_the_table_of_the_documentation():
    records = {export.name for export in EXPORTS if export.group == "records"}
    named = {export.name for export in EXPORTS} - records
    assert [name for name in sorted(named) if f"`{name}`" not in DOCUMENT] == []
