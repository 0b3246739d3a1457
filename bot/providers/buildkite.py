"""Buildkite's events in the normal form: builds, and those of their jobs that run a command.

An event may carry a later state than the one it is named after, so the state is read, never the event.
https://buildkite.com/docs/apis/webhooks/pipelines
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bot.core.json_fields import Kind, Unreadable, clean, read_member
from bot.providers import normal_form as read
from bot.providers.settings import BUILDKITE, normalize_project
from bot.providers.tables import PROVIDER_JOB, PROVIDER_RUN

if TYPE_CHECKING:
    from bot.ingest.records import Record
    from bot.providers.normal_form import Json

QUEUED, RUNNING, COMPLETED = "queued", "in_progress", "completed"
WAITING = frozenset(
    ("pending", "waiting", "blocked", "limiting", "limited", "platform_limited")
)  # not for an agent
JOB_STATES: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys((*WAITING, "scheduled", "assigned", "accepted"), (QUEUED, None)),
    **dict.fromkeys(("running", "canceling", "timing_out"), (RUNNING, None)),
    "passed": (COMPLETED, "success"),
    "failed": (COMPLETED, "failure"),
    **dict.fromkeys(("timed_out", "expired"), (COMPLETED, "timed_out")),
    "canceled": (COMPLETED, "cancelled"),
    **dict.fromkeys(
        ("skipped", "broken", "waiting_failed", "blocked_failed", "unblocked_failed", "not_run"),
        (COMPLETED, "skipped"),
    ),
}
BUILD_STATES: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys(("creating", "scheduled", "blocked", "waiting"), (QUEUED, None)),
    **dict.fromkeys(("running", "failing", "canceling"), (RUNNING, None)),
    "passed": (COMPLETED, "success"),
    "failed": (COMPLETED, "failure"),
    "canceled": (COMPLETED, "cancelled"),
    **dict.fromkeys(("skipped", "not_run", "waiting_failed"), (COMPLETED, "skipped")),
}
ADDRESS = re.compile(r"https?://[^/?#]+/([A-Za-z0-9._-]{1,100})/")  # of a build: its organization
OTHER = "other"
NO_AGENT = "no agent took it"
LOST = -1  # exit status where the agent was lost
# what ended a job that was not its own command; see `signal_reason` of Buildkite's jobs
INFRA = {
    "agent_stop": "its agent was stopped",
    "process_run_error": "its agent could not start it",
    "stack_error": "its agent failed",
    "agent_refused": "its agent refused it",
    "agent_incompatible": "its agent cannot run it",
    "signature_rejected": "its agent rejected its signature",
}
SCRIPT = "script"  # type of the jobs that run a command; others wait, or start other builds


def make_project(address: object, slug: object) -> str:
    """Return organization and pipeline: the first part of a build's address, and the pipeline's slug.

    Raises Unreadable where these do not say.
    """
    found = ADDRESS.match(address) if isinstance(address, str) else None
    if found is None or not isinstance(slug, str) or not slug:
        raise Unreadable("build.web_url or pipeline.slug is missing or malformed")
    return normalize_project(BUILDKITE, clean(f"{found[1]}/{slug}")[: read.ID_MOST])


def read_job(data: Json, start: Json) -> Record | None:
    """Return a job, None for steps that run no command; `start` is what every record begins with."""
    if read.read_text(data, "job", "type") != SCRIPT:
        return None
    job: Json = data["job"]
    state = read.read_text(job, "state", most=read.WORD_MOST) or ""
    exit_status = read.read_number(job, "exit_status")
    status, conclusion = _job_state(state, exit_status, ended=read.read_time(job, "finished_at") is not None)
    soft = read.read_flag(job, "soft_failed")
    if conclusion == "failure" and soft:
        conclusion = "neutral"
    index, total = (
        read.read_number(job, "parallel_group_index"),
        read.read_number(job, "parallel_group_total"),
    )
    sharded = index is not None and total is not None and 0 <= index < total <= read.ATTEMPTS_MOST
    retries = min(max(read.read_number(job, "retries_count") or 0, 0), read.ATTEMPTS_MOST)
    values = _common(data, start) | {
        "job_id": read.read_id(job, "id"),
        "pipeline_id": read.read_text(data, "pipeline", "id", most=read.ID_MOST),
        "workflow_id": read.read_text(data, "build", "id", most=read.ID_MOST),
        "workflow_name": read.read_text(data, "pipeline", "slug"),
        "job_name": _name(job),
        "number": read.read_number(data, "build", "number"),
        "attempt": retries + 1,
        "shard": index + 1 if sharded and index is not None else None,
        "shards": total if sharded else None,
        "status": status,
        "conclusion": conclusion,
        "raw_state": state or None,
        "exit_status": exit_status,
        "soft_failed": soft,
        "retried_in_job_id": read.read_text(job, "retried_in_job_id", most=read.ID_MOST),
        "runner": _runner(job),
        **_failure(job, state, exit_status, conclusion),
        "created_at": read.read_time(job, "created_at"),
        "runnable_at": read.read_time(job, "runnable_at"),
        "started_at": read.read_time(job, "started_at"),
        "completed_at": read.read_time(job, "finished_at"),
        "url": read.read_url(job, "web_url"),
        "log_url": read.read_url(job, "log_url"),
    }
    return read.make_record(PROVIDER_JOB, values)


def read_build(data: Json, start: Json) -> Record:
    """Return a build. One that waits to be unblocked has not ended, whatever its state: it may run on."""
    state = read.read_text(data, "build", "state", most=read.WORD_MOST) or ""
    ended = read.read_time(data, "build", "finished_at")
    status, conclusion = BUILD_STATES.get(state, (COMPLETED, OTHER) if ended else (RUNNING, None))
    if read.read_flag(data, "build", "blocked"):
        status, conclusion = QUEUED, None
    values = _common(data, start) | {
        "run_id": read.read_id(data, "build", "id"),
        "pipeline_id": read.read_text(data, "pipeline", "id", most=read.ID_MOST),
        "name": read.read_text(data, "pipeline", "slug"),
        "number": read.read_number(data, "build", "number"),
        "source": read.read_text(data, "build", "source", most=read.WORD_MOST),
        "status": status,
        "conclusion": conclusion,
        "raw_state": state or None,
        "created_at": read.read_time(data, "build", "created_at"),
        "started_at": read.read_time(data, "build", "started_at"),
        "completed_at": ended if status == COMPLETED else None,
        "url": read.read_url(data, "build", "web_url"),
    }
    return read.make_record(PROVIDER_RUN, values)


def _common(data: Json, start: Json) -> dict[str, Any]:
    return start | {
        "provider": BUILDKITE,
        "project": make_project(data["build"].get("web_url"), data["pipeline"].get("slug")),
        "head_sha": read.read_commit(data, "build", "commit"),  # HEAD until the build has begun
        "branch": read.read_text(data, "build", "branch"),
        "tag": read.read_text(data, "build", "tag"),
        "pr_number": read.read_number(data, "build", "pull_request", "id"),
    }


def _job_state(state: str, exit_status: int | None, *, ended: bool) -> tuple[str, str | None]:
    if state == "finished":
        return (COMPLETED, "success" if exit_status == 0 else "failure" if exit_status is not None else OTHER)
    return JOB_STATES.get(state, (COMPLETED, OTHER) if ended else (RUNNING, None))


def _failure(job: Json, state: str, exit_status: int | None, conclusion: str | None) -> dict[str, str | None]:
    """Return why a job failed, and whether that was its own doing."""
    reason = read.read_text(job, "signal_reason", most=read.WORD_MOST) or ""
    if state == "expired":
        return {"reason": NO_AGENT, "failure_kind": "infra"}
    if conclusion not in {"failure", "neutral"}:
        return {"reason": None, "failure_kind": None}
    if reason in INFRA or exit_status == LOST:
        return {"reason": INFRA.get(reason, "its agent was lost"), "failure_kind": "infra"}
    words = None if exit_status is None else f"exit status {exit_status}"
    return {"reason": words, "failure_kind": None}


def _name(job: Json) -> str:
    """Return a job's name as it is, with its emoji; without one the key of its step, or its command's first word."""
    command = (read.read_text(job, "command") or "").split()
    return read.read_text(job, "name") or read.read_text(job, "step_key") or next(iter(command), "") or "job"


def _runner(job: Json) -> str | None:
    """Return what a job asks of its agent: the rule that names a queue, or else all of them."""
    rules = [rule for rule in read_member(job, ("agent_query_rules",), Kind.TEXTS) or () if rule != "*"]
    queue = next((rule for rule in rules if rule.startswith("queue=")), None)
    return (queue or " ".join(rules))[: read.ID_MOST] or None
