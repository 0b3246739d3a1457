"""What is counted for the operator? Prometheus metrics; labels have few values, never anything from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.store.inbox import Stored

DELIVERIES = Counter("ootbot_deliveries_total", "Webhook deliveries by answer.", ["outcome"])
STORED, DUPLICATES = DELIVERIES.labels("stored"), DELIVERIES.labels("duplicate")
APPLIED = Counter("ootbot_deliveries_applied_total", "Deliveries taken from the inbox.")
APPLY_DELAY = Histogram("ootbot_apply_delay_seconds", "From a delivery's arrival to its records.")
REPORTS = Counter("ootbot_reports_total", "Backend reports by answer code.", ["code"])
MISMATCHES = Counter(
    "ootbot_report_mismatches_total",
    "Reported values that contradict the token or our dispatch.",
    ["field"],
)


def applied(taken: Sequence[Stored], *, now: int) -> None:
    """Count deliveries that were taken from the inbox and how long they lay there."""
    APPLIED.inc(len(taken))
    for one in taken:
        APPLY_DELAY.observe(max(now - one.received_at, 0) / 1000)
