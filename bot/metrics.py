"""What is counted for the operator? Prometheus metrics; labels have few values, never anything from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.store.inbox import Stored

DELIVERIES = Counter("ootbot_deliveries_total", "Webhook deliveries by answer.", ["outcome"])
STORED, DUPLICATES = DELIVERIES.labels("stored"), DELIVERIES.labels("duplicate")
APPLIED = Counter(
    "ootbot_deliveries_applied_total",
    "Deliveries taken from the inbox, parked or of no handler.",
    ["outcome"],
)
APPLY_DELAY = Histogram("ootbot_apply_delay_seconds", "From a delivery's arrival to its records.")
REPORTS = Counter("ootbot_reports_total", "Backend reports by answer code.", ["code"])
ALLOWLIST_OK = Gauge("ootbot_allowlist_ok", "1 when the allowlist read last is in force, 0 when it is wrong.")
MISMATCHES = Counter(
    "ootbot_report_mismatches_total",
    "Reported values that contradict the token or our dispatch.",
    ["field"],
)
REDELIVERIES = Counter("ootbot_redeliveries_asked_total", "Missed deliveries GitHub was asked to send again.")
LOST = Counter("ootbot_deliveries_lost_total", "Missed deliveries that GitHub did not send again.")
SWEEP_AGE = Gauge(
    "ootbot_sweep_age_seconds",
    "Since the last complete look at GitHub: its delivery log, or what is open and running there.",
    ["sweep", "app"],
)
WRITE_WAIT = Histogram(
    "ootbot_github_write_wait_seconds",
    "How long a write to GitHub that went waited for its turn in the worker; see the ones sent back.",
    buckets=(0, 0.5, 1, 2, 5, 10, 30),
)
BUDGET_LEFT = Gauge(
    "ootbot_github_creations_left",
    "New checks and comments that may still be made in a window, by the account they are made at.",
    ["account", "window"],
)
WRITES_SENT_BACK = Counter(
    "ootbot_github_writes_sent_back_total",
    "Calls that were sent back to the queue: asked to wait by GitHub, out of budget, or others go first.",
    ["reason"],
)
WRITES_SAVED = Counter(
    "ootbot_github_writes_saved_total", "Check runs and comments that were right already when compared."
)


def applied(taken: Sequence[Stored], *, events: frozenset[str], now: int) -> None:
    """Count deliveries taken from the inbox, those without a handler apart, and how long they lay there."""
    without = sum(one.event not in events for one in taken)
    APPLIED.labels("no_handler").inc(without)
    APPLIED.labels("taken").inc(len(taken) - without)
    for one in taken:
        APPLY_DELAY.observe(max(now - one.received_at, 0) / 1000)
