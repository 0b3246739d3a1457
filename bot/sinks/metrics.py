"""Metrics of sinks; their labels are names of the settings and of exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from bot.sinks.store import marks

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.access import Hidden

LAG = Gauge(
    "ootbot_sink_lag_seconds", "Age of the oldest change that a sink does not have.", ["sink", "what"]
)
WAITING = Gauge("ootbot_sink_waiting_rows", "Rows that are to be sent to a sink.", ["sink", "what"])
ROWS = Counter("ootbot_sink_rows_total", "Rows that a sink has taken.", ["sink", "what"])
REFUSED = Counter("ootbot_sink_refused_total", "Rows that a sink does not take.", ["sink", "what"])
BATCH_SECONDS = Histogram(
    "ootbot_sink_batch_seconds",
    "Time to read and send a batch.",
    ["sink"],
    buckets=(0.05, 0.25, 1, 5, 15, 60),
)


async def measure_sinks(tx: Transaction, _settings: Settings, _hidden: Hidden) -> Callable[[], None]:
    """Return what shows how far sinks are behind."""
    waiting = await marks.count_waiting(tx)

    def show() -> None:
        LAG.clear()
        WAITING.clear()
        for (sink, what), found in waiting.items():
            LAG.labels(sink, what).set(max(tx.now - found.since, 0) / 1000)
            WAITING.labels(sink, what).set(found.rows)

    return show
