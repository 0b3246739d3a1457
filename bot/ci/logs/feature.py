"""The feature `logs`: job logs, why jobs failed, and which failures are the same."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

HAS_LOGS = "bot.ci.logs.views.routes:has_logs"

FEATURE = Feature(
    name="logs",
    tables="bot.ci.logs.tables",
    exports="bot.ci.logs.exports:EXPORTS",
    additions="bot.ci.logs.exports:ADDITIONS",
    tasks={
        "log_rules": "bot.ci.logs.load_rules:load_rules",
        "private_logs": "bot.ci.logs.follow_changes:move_private_failures",
        "reclassify": "bot.ci.logs.reclassify:reclassify_logs",
    },
    background=frozenset({"log_rules", "reclassify"}),
    sums=("bot.ci.logs.store.failure_counts:FAILURES",),
    periodic="bot.ci.logs.load_rules:periodic",
    settings="bot.ci.logs.settings:LogsSettings",
    commands={"logs": "bot.console.logs:logs"},
    parsers={"log": "bot.ci.logs.parse.parse_log:parse_log"},
    receivers={"log": "bot.ci.logs.store_log:RECEIVER"},
    before_commit="bot.ci.logs.follow_changes:before_commit",
    prune="bot.ci.logs.prune:prune_logs",
    admin_forms={"/failures": "bot.ci.logs.admin:tie_issue"},
    metrics="bot.ci.logs.admin:measure_coverage",
    views="bot.ci.logs.views.routes:VIEWS",
    navigation=(
        NavigationEntry(bar="site", path="/failures", label="Failures", place=30, covers=("/failures/",)),
        NavigationEntry(
            bar="repository", path="/failures?repo={repo}", label="Failures", place=40, shown=HAS_LOGS
        ),
        NavigationEntry(bar="repository", path="/{repo}/logs", label="Logs", place=41, shown=HAS_LOGS),
    ),
    search="bot.ci.logs.views.search_hits:find_hits",
    sections={
        "job": "bot.ci.logs.sections:job_section",
        "job_json": "bot.ci.logs.sections:job_json",
        "run": "bot.ci.logs.sections:run_section",
        "cell": "bot.ci.logs.sections:cell_lines",
        "comment": "bot.ci.logs.sections:backend_lines",
        "failures": "bot.ci.logs.sections:find_failures",
        "admin": "bot.ci.logs.admin:admin_section",
    },
)
