"""The feature `utilization`: what the machine did while a job ran."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="utilization",
    tables="bot.ci.utilization.tables",
    tasks={"utilization": "bot.ci.utilization.late_jobs:run"},
    background=frozenset({"utilization"}),
    sums=("bot.ci.utilization.count_days:UTILIZATION",),
    before_commit="bot.ci.utilization.late_jobs:note",
    parsers={"usage": "bot.ci.utilization.parse_usage:parse"},
    receivers={"usage": "bot.ci.utilization.store_usage:RECEIVER"},
    prune="bot.ci.utilization.prune:prune",
    views="bot.ci.utilization.views.routes:VIEWS",
    routes="bot.ci.utilization.views.routes:setup",
    sections={
        "job": "bot.ci.utilization.sections:of_job",
        "run": "bot.ci.utilization.sections:of_run",
        "pull": "bot.ci.utilization.sections:of_pull",
        "backend": "bot.ci.utilization.sections:of_backend",
        "commit": "bot.ci.utilization.sections:of_commit",
        "cell": "bot.ci.utilization.sections:of_cell",
    },
    commands={"utilization": "bot.console.utilization:utilization"},
)
