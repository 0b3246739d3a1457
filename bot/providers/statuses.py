"""Commit statuses on GitHub in the normal form: how Jenkins, Azure, GitLab mirrors and others tell of their jobs.

https://docs.github.com/en/webhooks/webhook-events-and-payloads#status
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import msgspec

from bot.core.json_fields import Unreadable, require_int
from bot.ingest import record_writer
from bot.ingest.delivery import record_repository
from bot.ingest.records import Record
from bot.providers import normal_form as read
from bot.providers.tables import STATUS_JOB

if TYPE_CHECKING:
    from typing import Any

    from bot.db.transaction import Transaction
    from bot.ingest.delivery import Delivery
    from bot.providers.normal_form import Json

STATUS = "status"
STATES: dict[str, tuple[str, str | None]] = {
    "pending": ("in_progress", None),
    "success": ("completed", "success"),
    "failure": ("completed", "failure"),
    "error": ("completed", "failure"),
}
RANKS = {state: rank for rank, state in enumerate(("pending", "success", "failure", "error"), 1)}
SEPARATOR = re.compile("[/:]")
CONTEXT_MOST = 300  # characters


def record_status(tx: Transaction, event: Delivery) -> None:
    """Have a commit status merged into the jobs of its repository: of one context the newest counts."""
    repository = event.data.get("repository")
    inside: Json = repository if isinstance(repository, dict) else {}
    start = {
        "repository_id": require_int(inside, "id", "repository.id"),
        "repo": event.repo,
        "received_at": event.received_at,
        "delivery_guid": event.delivery_id,
    }
    record_writer.record(tx, read_status(event.data, start))
    record_repository(tx, event, repository)


def read_status(data: Json, start: Json) -> Record:
    """Return a commit status as a job; `start` is what every record begins with."""
    sha = read.read_commit(data, "sha")
    context = read.read_text(data, "context", most=CONTEXT_MOST)
    if sha is None:
        raise Unreadable("sha is missing or not a commit's")
    if context is None:
        raise Unreadable("context is missing or no text")
    state = read.read_text(data, "state", most=read.WORD_MOST) or ""
    status, conclusion = STATES.get(state, ("in_progress", None))
    at = read.read_time(data, "updated_at") or read.read_time(data, "created_at")
    workflow, job = _split(context)
    whole = dict.fromkeys(STATUS_JOB.names) | start
    values = whole | {
        "provider": STATUS,
        "project": "",
        "job_id": f"{sha}/{context}",
        "workflow_name": workflow,
        "job_name": job,
        "number": read.read_number(data, "id"),
        "attempt": 1,
        "head_sha": sha,
        "branch": _only_branch(data),
        "status": status,
        "conclusion": conclusion,
        "raw_state": state or None,
        "reason": read.read_text(data, "description") if conclusion == "failure" else None,
        "url": read.read_url(data, "target_url"),
        "created_at": read.read_time(data, "created_at"),
        "completed_at": at if conclusion else None,
        "updated_at": at,
        "deleted_at": None,
    }
    version = _version(data, at, state)
    return Record(type=STATUS_JOB, values=values, version=version, guid=str(values["delivery_guid"]))


def context_of(job_id: str) -> str:
    """Return the context of a status, by the id that it has as a job."""
    return job_id.partition("/")[2]


def _version(data: Json, at: int | None, state: str) -> str:
    """Return a text that is greater for the newer status; of one second for the graver state."""
    told = {
        name: data.get(name)
        for name in ("id", "sha", "context", "state", "description", "target_url", "updated_at")
    }
    digest = hashlib.sha256(msgspec.json.encode(told, order="deterministic")).hexdigest()
    return f"{at or 0:015d}:{RANKS.get(state, 0)}:{digest}"


def _split(context: str) -> tuple[str, str]:
    """Return workflow and job: what stands before the first slash or colon, and what follows."""
    found = SEPARATOR.search(context)
    if found is None or not found.start() or not context[found.end() :].strip():
        return "", context
    return context[: found.start()].strip(), context[found.end() :].strip()


def _only_branch(data: Json) -> str | None:
    """Return the branch that a commit is the head of, where GitHub names a single one."""
    branches: Any = data.get("branches")
    return read.read_text(branches[0], "name") if isinstance(branches, list) and len(branches) == 1 else None
