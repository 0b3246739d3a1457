"""Metrics that may not get worse: which have, for pages and for the operator's monitoring."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bot.ci.extras.metrics import metric_rows
from bot.ci.extras.metrics.settings import MetricSettings
from bot.core import metrics
from bot.ingest import watched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bot.ci.extras.metrics.tables import MetricTrend
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.access import Hidden

Factors = dict[tuple[str, str], float]  # by metric and value


def factors(settings: Settings) -> Factors:
    """Return the factors that the settings name."""
    alerts = settings.of(MetricSettings).ci_metric_alerts
    return {(metric, value): factor for metric, value, factor in alerts}


def is_regressed(trend: MetricTrend, known: Mapping[tuple[str, str], float]) -> bool:
    """Whether a value is worse than its factor allows."""
    factor = known.get((trend["metric"], trend["value_name"]))
    if factor is None or not trend["before"]:
        return False
    allowed = trend["before"] * factor
    return trend["recent"] > allowed if factor > 1 else trend["recent"] < allowed


async def measure_alerts(tx: Transaction, settings: Settings, hidden: Hidden) -> Callable[[], None]:
    """Return what shows which metrics got worse."""
    known, found = factors(settings), dict[tuple[str, str, str], bool]()
    for repo in settings.upstream_repo if known else ():
        owners = set() if hidden.has(repo) else await watched.ids(tx, repo)
        for trend in await metric_rows.trends_of(tx, owners, known):
            if not hidden.has(repo, trend["repository_id"]):
                found[repo, trend["metric"], trend["value_name"]] = is_regressed(trend, known)
    return partial(metrics.show_regressed, found)
