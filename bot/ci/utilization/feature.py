"""The feature `utilization`: what the machine did while a job ran."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="utilization",
    tables="bot.ci.utilization.tables",
    exports="bot.ci.utilization.exports:EXPORTS",
    tasks={"utilization": "bot.ci.utilization.late_jobs:attribute_again"},
    background=frozenset({"utilization"}),
    sums=("bot.ci.utilization.store.count_days:UTILIZATION",),
    before_commit="bot.ci.utilization.late_jobs:request_attribution",
    parsers={"usage": "bot.ci.utilization.parse.parse_usage:parse_log"},
    receivers={"usage": "bot.ci.utilization.store_usage:RECEIVER"},
    prune="bot.ci.utilization.store.count_days:prune",
    views="bot.ci.utilization.views.routes:VIEWS",
    routes="bot.ci.utilization.views.routes:setup",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/utilization",
            label="Utilization",
            place=50,
            shown="bot.ci.utilization.views.routes:has_usage",
        ),
    ),
    sections={
        "job": "bot.ci.utilization.sections:show_job",
        "run": "bot.ci.utilization.sections:show_run",
        "pull": "bot.ci.utilization.sections:show_pull",
        "backend": "bot.ci.utilization.sections:show_backend",
        "commit": "bot.ci.utilization.sections:show_commit",
        "cell": "bot.ci.utilization.sections:show_cell",
    },
    commands={"utilization": "bot.console.utilization:utilization"},
)
