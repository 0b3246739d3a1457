"""The feature `logs`: job logs, why jobs failed, and which failures are the same."""

from __future__ import annotations

from dataclasses import dataclass

from bot.core import setting_types
from bot.core.feature import Feature
from bot.core.settings import option

FEATURE = Feature(
    name="logs",
    tables="bot.evidence.logs.tables",
    exports="bot.evidence.logs.exports:EXPORTS",
    additions="bot.evidence.logs.exports:ADDITIONS",
    tasks={
        "log_rules": "bot.evidence.logs.reclassify:load_rules",
        "private_logs": "bot.evidence.logs.follow_changes:move_private_failures",
        "reclassify": "bot.evidence.logs.reclassify:reclassify_logs",
    },
    background=frozenset({"log_rules", "reclassify"}),
    sums=("bot.evidence.logs.rows:FAILURES",),
    periodic="bot.evidence.logs.reclassify:periodic",
    settings="bot.evidence.logs.feature:LogsSettings",
    commands={"logs": "bot.console.evidence:logs"},
    parsers={"log": "bot.evidence.logs.parse.parse_log:parse_log"},
    receivers={"log": "bot.evidence.logs.store_log:RECEIVER"},
    before_commit="bot.evidence.logs.follow_changes:before_commit",
    prune="bot.evidence.logs.failure_costs:prune_logs",
    admin_forms={"/failures": "bot.evidence.logs.failure_costs:answer_issue_form"},
    metrics="bot.evidence.logs.failure_costs:measure_coverage",
    sections={
        "comment": "bot.evidence.logs.failure_lines:backend_lines",
        "failures": "bot.evidence.logs.failure_lines:find_failures",
        "admin": "bot.evidence.logs.failure_costs:admin_section",
    },
)


@dataclass(frozen=True, kw_only=True)
class LogsSettings:
    """How logs are classified."""

    ci_log_rules: tuple[str, ...] = option(
        "Rules for logs in front of those that come with the program: paths, or owner/repo:path of a default branch, "
        "comma separated; the first has priority.",
        setting_types.words,
        default=(),
    )
