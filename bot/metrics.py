"""What is counted for the operator? Prometheus metrics; labels have few values, never anything from outside."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from bot import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.store.backlog import Backlog
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
KEY_FETCHES = Counter(
    "ootbot_issuer_key_fetches_total", "Fetches of an issuer's keys: ok, failed.", ["issuer", "outcome"]
)
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
BUILD = Gauge("ootbot_build_info", "The version that runs; always 1.", ["version"])
BUILD.labels(__version__).set(1)
DATABASE_OK = Gauge(
    "ootbot_database_ok", "1 when the database can be read and took the last write, 0 when not."
)
INBOX = Gauge("ootbot_inbox_deliveries", "Deliveries stored and not handled yet.")
PARKED = Gauge("ootbot_parked_deliveries", "Deliveries of the last week that could not be handled.")
INBOX_AGE = Gauge("ootbot_inbox_oldest_seconds", "Age of the oldest of them.")
TASKS = Gauge("ootbot_tasks", "Tasks that are due, running, or dead (given up).", ["state"])
TASKS_LATE = Gauge("ootbot_tasks_longest_due_seconds", "How long the task that is due longest has been due.")
TASK_RUNS = Counter("ootbot_task_runs_total", "Runs of tasks: done, retried, given_up.", ["task", "outcome"])
HEARD_AT = Gauge("ootbot_last_delivery_timestamp_seconds", "When GitHub last told something; 0 when never.")
DISK_FREE = Gauge(
    "ootbot_disk_free_bytes",
    "Room where the database lies, while that is a file of ours: sqlite. PostgreSQL's is watched where it runs.",
    ["database"],
)
CALLS = Counter(
    "ootbot_github_calls_total",
    "Calls to GitHub: ok, refused (4xx), limited, failed (5xx), unreachable.",
    ["app", "outcome"],
)
REQUESTS = Histogram(
    "ootbot_request_seconds",
    "Time to answer requests, by door and kind of status.",
    ["door", "status"],
    buckets=(0.005, 0.025, 0.1, 0.25, 1, 5),
)


@cache
def _requests(door: str, kind: int) -> Histogram:
    return REQUESTS.labels(door, f"{kind}xx")


def answered(door: str, status: int, seconds: float) -> None:
    """Count a request by its door and the first digit of its status."""
    _requests(door, status // 100).observe(seconds)


def applied(taken: Sequence[Stored], *, events: frozenset[str], now: int) -> None:
    """Count deliveries taken from the inbox, those without a handler apart, and how long they lay there."""
    without = sum(one.event not in events for one in taken)
    APPLIED.labels("no_handler").inc(without)
    APPLIED.labels("taken").inc(len(taken) - without)
    for one in taken:
        APPLY_DELAY.observe(max(now - one.received_at, 0) / 1000)


def waiting(now: Backlog, *, heard_at: int | None) -> None:
    """Show what waits, and when GitHub last told something (epoch milliseconds)."""
    INBOX.set(now.deliveries)
    PARKED.set(now.parked)
    INBOX_AGE.set(now.oldest_delivery / 1000)
    for state, count in (("due", now.due), ("running", now.running), ("dead", now.dead)):
        TASKS.labels(state).set(count)
    TASKS_LATE.set(now.longest_due / 1000)
    HEARD_AT.set((heard_at or 0) / 1000)


def called(app_id: int, status: int | None, *, limited: bool = False) -> None:
    """Count a call to GitHub by what came of it; no status: no answer."""
    if status is None:
        outcome = "unreachable"
    elif limited:
        outcome = "limited"
    else:
        outcome = "failed" if status >= 500 else "refused" if status >= 400 else "ok"
    CALLS.labels(app_id, outcome).inc()
