"""The feature `logs`: job logs, why jobs failed, and which failures are the same."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="logs",
    tables="bot.ci.logs.tables",
    tasks={
        "log_rules": "bot.ci.logs.load_rules:run",
        "private_logs": "bot.ci.logs.visibility:run",
        "reclassify": "bot.ci.logs.reclassify:run",
    },
    background=frozenset({"log_rules", "reclassify"}),
    sums=("bot.ci.logs.failure_counts:FAILURES",),
    periodic="bot.ci.logs.load_rules:periodic",
    settings="bot.ci.logs.settings:LogsSettings",
    commands={"logs": "bot.console.logs:logs"},
    parsers={"log": "bot.ci.logs.parse_log:parse"},
    receivers={"log": "bot.ci.logs.store_log:RECEIVER"},
    before_commit="bot.ci.logs.hooks:before_commit",
    prune="bot.ci.logs.prune:prune",
    admin_forms={"/failures": "bot.ci.logs.admin:tie"},
    metrics="bot.ci.logs.admin:measure",
    routes="bot.ci.logs.pages:setup",
    openapi="bot.ci.logs.openapi:OPERATIONS",
    sections={
        "job": "bot.ci.logs.sections:of_job",
        "job_json": "bot.ci.logs.sections:job_json",
        "run": "bot.ci.logs.sections:of_run",
        "pull": "bot.ci.logs.sections:of_pull",
        "comment": "bot.ci.logs.sections:of_backends",
        "commit": "bot.ci.logs.sections:of_commit",
        "admin": "bot.ci.logs.admin:section",
    },
)
