"""How does a row look as JSON? Columns keep their names; times are written as GitHub writes them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bot.domain.reading import Kind, show_time
from bot.domain.stats import grade

if TYPE_CHECKING:
    from bot.domain.allowlist import Entry
    from bot.domain.records import RecordType
    from bot.domain.view import Job
    from bot.web.health import Health
    from bot.web.pulls import Section, Shown

Row = dict[str, Any]
JOB_COLUMNS = (
    "status", "conclusion", "downstream_repo", "upstream_repo", "pr_number", "head_sha", "delivery_id",
    "workflow_run_url", "workflow_name", "job_name", "check_run_id", "reporter_check_run_id", "run_id",
    "run_attempt", "queue_time", "execution_time", "started_at", "completed_at", "total_tests",
    "passed_tests", "failed_tests", "skipped_tests", "failed_tests_json", "artifact_url", "environment",
    "downstream_repo_level", "event_type", "source", "flags", "received_at",
)  # fmt: skip
JOB_TIMES = frozenset({"started_at", "completed_at", "received_at"})


def time(at: int | None) -> str | None:
    """Return a time as GitHub writes it; unknown stays unknown."""
    return None if at is None else show_time(at)


def job(row: Row) -> Row:
    """Return one row of oot_workflow_job, without our own keys."""
    return {name: time(row[name]) if name in JOB_TIMES else row[name] for name in JOB_COLUMNS}


def record(kind: RecordType, row: Row) -> Row:
    """Return a record as one flat object, without what merging needs."""
    times = {column.name for column in kind.columns if column.kind is Kind.TIME}
    times |= {"received_at", "deleted_at"}
    return {
        name: time(value) if name in times else value for name, value in row.items() if name != "merge_state"
    }


def health(one: Health) -> Row:
    """Return a backend with its numbers; rates are 0 to 1, durations seconds."""
    numbers = asdict(one.stats)
    return {
        "repo": one.repo,
        "level": one.level,
        "device": one.device,
        "listed": one.listed,
        "oncalls": list(one.oncalls),
        "grade": grade(one.stats.pass_rate),
        **numbers,
        "last_at": time(one.stats.last_at),
        "trend": list(one.trend),
        "turned": one.turned or None,
        "waiting": one.waiting,
        "stale": one.stale,
    }


def dispatch(row: Row) -> Row:
    """Return a dispatch nobody answered, and why, as far as known."""
    told = {
        name: row[name] for name in ("delivery_id", "upstream_repo", "event_type", "pr_number", "head_sha")
    }
    times = {name: time(row[name]) for name in ("created_at", "dispatched_at")}
    return told | {"state": row["state"], "reason": row["error"]} | times


def entry(one: Entry) -> Row:
    """Return an allowlist entry; the line it stands on is left out."""
    values = asdict(one) | {
        "level": int(one.level),
        "events": sorted(one.events),
        "oncalls": list(one.oncalls),
    }
    del values["line"]
    return values


def pull(shown: Shown) -> Row:
    """Return what is known of the pull request itself and which of its heads is shown."""
    record = shown.record or {}
    kept = (
        "title",
        "state",
        "draft",
        "merged",
        "user_login",
        "author_association",
        "base_ref",
        "labels",
        "html_url",
    )
    times = {name: time(record.get(name)) for name in ("created_at", "updated_at", "closed_at", "merged_at")}
    return {
        "repo": shown.repo,
        "number": shown.number,
        "head_sha": shown.sha,
        "page_url": shown.page_url,
        **{name: record.get(name) for name in kept},
        **times,
    }


def failing(one: Job) -> Row:
    """Return how a failing job compares with the same job elsewhere, and the run that shows it."""
    return {
        "workflow_name": one.workflow,
        "job_name": one.name,
        "run_id": one.run_id,
        "run_attempt": one.run_attempt,
        "history": one.history and str(one.history),
        "evidence_url": one.evidence_url,
        "evidence_elsewhere": one.evidence_elsewhere,
    }


def section(one: Section) -> Row:
    """Return where one backend stands on the shown head."""
    backend = one.backend
    return {
        "repo": backend.repo,
        "level": backend.level,
        "device": backend.device,
        "state": str(backend.state),
        "reason": backend.reason,
        "finished": backend.state.finished,
        "attempt": backend.attempt,
        "dispatched_at": time(backend.dispatched_at),
        "finished_at": time(backend.finished_at),
        "run_url": backend.run_url,
        "page_url": backend.page_url,
        "oncalls": list(backend.oncalls),
        "ignored_by": backend.ignored_by,
        "ignored_reason": backend.ignored_reason,
        "failing": [failing(job) for job in backend.failing],
        "source": "relay" if one.relayed else "callback",
    }
