"""The feature `metrics`: numbers that scripts of CI emit."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="metrics",
    tables="bot.ci.extras.metrics.tables",
    sums=("bot.ci.extras.metrics.documents:METRICS",),
    parsers={"metrics": "bot.ci.extras.parse.metric_lines:parse_metrics"},
    receivers={"metrics": "bot.ci.extras.metrics.documents:RECEIVER"},
    prune="bot.ci.extras.metrics.documents:prune",
    views="bot.ci.extras.metrics.metrics_page:VIEWS",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/custom",
            label="Metrics of scripts",
            place=76,
            shown="bot.ci.extras.shown_pages:has_metrics",
        ),
    ),
    routes="bot.ci.extras.metrics.metrics_page:setup",
    metrics="bot.ci.extras.metrics.alerts:measure_alerts",
    settings="bot.ci.extras.metrics.settings:MetricSettings",
)
