"""Prometheus metrics for the operator; labels have few values, never anything from outside."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from bot import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ingest.inbox import Backlog
    from bot.ingest.tables import ReceivedRow

DELIVERIES = Counter("ootbot_deliveries_total", "Webhook deliveries by answer.", ["outcome"])
STORED, DUPLICATES = DELIVERIES.labels("stored"), DELIVERIES.labels("duplicate")
DELIVERIES_READ = Counter(
    "ootbot_deliveries_read_total",
    "Requests with a delivery, by how they were read: fast_path, aiohttp.",
    ["by"],
)
READ_BY_FAST_PATH, READ_BY_AIOHTTP = DELIVERIES_READ.labels("fast_path"), DELIVERIES_READ.labels("aiohttp")
APPLIED = Counter(
    "ootbot_deliveries_applied_total",
    "Deliveries by outcome: taken, no_handler, parked.",
    ["outcome"],
)
APPLY_DELAY = Histogram("ootbot_apply_delay_seconds", "Time from a delivery's arrival to its records.")
REPORTS = Counter("ootbot_reports_total", "Backend reports by answer code.", ["code"])
KEY_FETCHES = Counter(
    "ootbot_issuer_key_fetches_total", "Fetches of an issuer's keys: ok, failed.", ["issuer", "outcome"]
)
ALLOWLIST_OK = Gauge(
    "ootbot_allowlist_ok", "1 when the allowlist last read is in force, 0 when it is invalid."
)
MISMATCHES = Counter(
    "ootbot_report_mismatches_total",
    "Reported values that contradict the token or our dispatch.",
    ["field"],
)
REDELIVERIES = Counter("ootbot_redeliveries_asked_total", "Missed deliveries whose redelivery was requested.")
LOST = Counter("ootbot_deliveries_lost_total", "Missed deliveries that GitHub did not send again.")
SWEEP_AGE = Gauge(
    "ootbot_sweep_age_seconds",
    "Time since the last complete sweep of GitHub: its delivery log, or what is open and running there.",
    ["sweep", "app"],
)
WRITE_WAIT = Histogram(
    "ootbot_github_write_wait_seconds",
    "How long a write to GitHub that was made waited for its turn in the worker; see those sent back.",
    buckets=(0, 0.5, 1, 2, 5, 10, 30),
)
BUDGET_LEFT = Gauge(
    "ootbot_github_creations_left",
    "New checks and comments that may still be made in a window, by account.",
    ["account", "window"],
)
WRITES_DEFERRED = Counter(
    "ootbot_github_writes_sent_back_total",
    "Calls sent back to the queue: GitHub asked to wait, out of budget, or others go first.",
    ["reason"],
)
WRITES_SAVED = Counter(
    "ootbot_github_writes_saved_total", "Check runs and comments that were up to date when compared."
)
BUILD = Gauge("ootbot_build_info", "The running version; always 1.", ["version"])
BUILD.labels(__version__).set(1)
DATABASE_OK = Gauge(
    "ootbot_database_ok", "1 when the database can be read and the last write succeeded, else 0."
)
INBOX = Gauge("ootbot_inbox_deliveries", "Unhandled deliveries.")
PARKED = Gauge("ootbot_parked_deliveries", "Deliveries of the last week that could not be handled.")
INBOX_AGE = Gauge("ootbot_inbox_oldest_seconds", "Age of the oldest unhandled delivery.")
TASKS = Gauge("ootbot_tasks", "Tasks that are due, running, or dead (given up).", ["state"])
TASKS_LATE = Gauge("ootbot_tasks_longest_due_seconds", "How long the oldest due task has been due.")
TASK_RUNS = Counter("ootbot_task_runs_total", "Runs of tasks: done, retried, given_up.", ["task", "outcome"])
LAST_DELIVERY_AT = Gauge(
    "ootbot_last_delivery_timestamp_seconds", "Time of the last delivery from GitHub; 0 when there was none."
)
DISK_FREE = Gauge(
    "ootbot_disk_free_bytes",
    "Free space on the disk of DATA_DIR: of the SQLite database, or beside PostgreSQL of the bot's files.",
    ["database"],
)
CALLS = Counter(
    "ootbot_github_calls_total",
    "Calls to GitHub: ok, refused (4xx), limited, failed (5xx), unreachable.",
    ["app", "outcome"],
)
CI_FETCHES = Counter(
    "ootbot_ci_fetches_total",
    "Logs and artifacts whose fetching ended, by kind and state.",
    ["kind", "state"],
)
CI_BYTES = Counter("ootbot_ci_bytes_total", "Bytes downloaded of logs and artifacts.", ["kind"])
CI_BLOB_BYTES = Gauge("ootbot_ci_blob_bytes", "Size of the stored logs and other blobs, measured hourly.")
VERDICTS = Counter(
    "ootbot_verdicts_total",
    "Logs of failed jobs that were classified, by kind; none: no rule matches.",
    ["kind"],
)
FAILED_JOBS = Gauge(
    "ootbot_failed_jobs",
    "Failed jobs of the last day: named, generic (or no rule matches), no_log.",
    ["verdict"],
)
TRUNK_BROKEN = Gauge(
    "ootbot_trunk_broken",
    "Broken jobs of a watched branch, by group of the grid.",
    ["repo", "branch", "group"],
)
PROVIDER_EVENTS = Counter(
    "ootbot_provider_events_total", "Events of other CIs that were stored.", ["provider", "event"]
)
PROVIDER_REFUSED = Counter(
    "ootbot_provider_refused_total",
    "Requests of other CIs that were refused, by error code.",
    ["provider", "reason"],
)
PROVIDER_UNMAPPED = Counter(
    "ootbot_provider_unmapped_total",
    "Events of other CIs whose project is mapped to no repository.",
    ["provider"],
)
BISECTS = Gauge("ootbot_bisects_total", "Searches for culprits, by state.", ["state"])
BISECT_RUNS = Gauge("ootbot_bisect_runs_total", "Runs that searches for culprits asked for.")
NOTICES = Counter(
    "ootbot_notices_total",
    "Attempts to send a notice to a receiver: sent, failed, dead (given up).",
    ["outcome"],
)
NOTICES_UNSENT = Gauge(
    "ootbot_notices_unsent",
    "Notices that receivers have yet to get (waiting), or did not get (dead).",
    ["state"],
)
METRIC_REGRESSED = Gauge(
    "ootbot_metric_regressed",
    "1 while a metric that OOTBOT_CI_METRIC_ALERTS names is worse than that allows, else 0.",
    ["repo", "metric", "value"],
)
REQUESTS = Histogram(
    "ootbot_request_seconds",
    "Response time, by endpoint and class of status.",
    ["door", "status"],
    buckets=(0.005, 0.025, 0.1, 0.25, 1, 5),
)


def count_provider_event(provider: str, event: str) -> None:
    """Count an event of another CI by its provider."""
    _provider_event(provider, event).inc()


def count_request(endpoint: str, status: int, seconds: float) -> None:
    """Count a request by its endpoint and the first digit of its status."""
    _requests(endpoint, status // 100).observe(seconds)


def count_applied(taken: Sequence[ReceivedRow], *, events: frozenset[str], now: int) -> None:
    """Count deliveries taken, those without a handler separately, and how long they had waited."""
    without = sum(delivery["event"] not in events for delivery in taken)
    APPLIED.labels("no_handler").inc(without)
    APPLIED.labels("taken").inc(len(taken) - without)
    for delivery in taken:
        APPLY_DELAY.observe(max(now - delivery["received_at"], 0) / 1000)


def show_backlog(
    now: Backlog, *, last_delivery_at: int | None, arrived: int = 0, oldest_arrived: int = 0
) -> None:
    """Show what is waiting, and when the last delivery arrived (epoch milliseconds).

    `arrived`: deliveries not in the inbox yet, and the age of the oldest of them in milliseconds.
    """
    INBOX.set(now.deliveries + arrived)
    PARKED.set(now.parked)
    INBOX_AGE.set(max(now.oldest_delivery, oldest_arrived) / 1000)
    for state, count in (("due", now.due), ("running", now.running), ("dead", now.dead)):
        TASKS.labels(state).set(count)
    TASKS_LATE.set(now.longest_due / 1000)
    LAST_DELIVERY_AT.set((last_delivery_at or 0) / 1000)


def show_broken(counts: Mapping[tuple[str, str, str], int]) -> None:
    """Show how many jobs are broken, by repository, branch and group, and nothing else."""
    TRUNK_BROKEN.clear()
    for labels, number in counts.items():
        TRUNK_BROKEN.labels(*labels).set(number)


def show_regressed(states: Mapping[tuple[str, str, str], bool]) -> None:
    """Show which metrics are worse than the settings allow, by repository, metric and value, and nothing else."""
    METRIC_REGRESSED.clear()
    for labels, regressed in states.items():
        METRIC_REGRESSED.labels(*labels).set(regressed)


def count_call(app_id: int, status: int | None, *, limited: bool = False) -> None:
    """Count a call to GitHub by its outcome; no status: no answer."""
    if status is None:
        outcome = "unreachable"
    elif limited:
        outcome = "limited"
    else:
        outcome = "failed" if status >= 500 else "refused" if status >= 400 else "ok"
    CALLS.labels(app_id, outcome).inc()


@cache
def _requests(endpoint: str, kind: int) -> Histogram:
    return REQUESTS.labels(endpoint, f"{kind}xx")


@cache
def _provider_event(provider: str, event: str) -> Counter:
    return PROVIDER_EVENTS.labels(provider, event)
