"""Commit statuses on GitHub in the normal form: how Jenkins, Azure, GitLab mirrors and others tell of their jobs."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from bot.core.errors import GitHubRefused, OverBudget
from bot.core.json_fields import Kind, Unreadable, read_member, require_int
from bot.ingest import inbox, record_store, repositories
from bot.ingest.deliveries import content_guid, record_repository, to_incoming
from bot.ingest.tables import Record
from bot.jobs import collection, rows
from bot.jobs.settings import CollectSettings
from bot.providers import tables
from bot.providers.tables import STATUS_JOB, is_trusted
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery
    from bot.ingest.inbox import Incoming
    from bot.ingest.reconcile import Window
    from bot.providers.tables import JsonObject

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
log = structlog.get_logger("bot.providers.statuses")

DAYS = 3  # a status that has no end by then stays so
LOOKED_AT, COMMITS_MOST = 500, 10


def record_status(tx: Transaction, event: Delivery) -> None:
    """Merge a commit status into the jobs of its repository; of each context the newest counts."""
    repository = event.data.get("repository")
    inside: JsonObject = repository if isinstance(repository, dict) else {}
    start = {
        "repository_id": require_int(inside, "id", "repository.id"),
        "repo": event.repo,
        "received_at": event.received_at,
        "delivery_guid": event.delivery_id,
    }
    record_store.add_record(tx, read_status(event.data, start))
    record_repository(tx, event, repository)


def read_status(data: JsonObject, start: JsonObject) -> Record:
    """Return a commit status as a job; `start` is what every record begins with."""
    sha = tables.read_commit(data, "sha")
    context = tables.read_text(data, "context", most=CONTEXT_MOST)
    if sha is None:
        raise Unreadable("sha is missing or not a commit's")
    if context is None:
        raise Unreadable("context is missing or no text")
    state = tables.read_text(data, "state", most=tables.WORD_MOST) or ""
    status, conclusion = STATES.get(state, ("in_progress", None))
    at = tables.read_time(data, "updated_at") or tables.read_time(data, "created_at")
    workflow, job = _split(context)
    whole = dict.fromkeys(STATUS_JOB.names) | start
    values = whole | {
        "provider": STATUS,
        "project": "",
        "job_id": f"{sha}/{context}",
        "workflow_name": workflow,
        "job_name": job,
        "number": tables.read_number(data, "id"),
        "attempt": 1,
        "head_sha": sha,
        "branch": _only_branch(data),
        "status": status,
        "conclusion": conclusion,
        "raw_state": state or None,
        "reason": tables.read_text(data, "description") if conclusion == "failure" else None,
        "url": tables.read_url(data, "target_url"),
        "created_at": tables.read_time(data, "created_at"),
        "completed_at": at if conclusion else None,
        "updated_at": at,
        "deleted_at": None,
    }
    version = _version(data, at, state)
    return Record(type=STATUS_JOB, values=values, version=version, guid=str(values["delivery_guid"]))


def context_of(job_id: str) -> str:
    """Return the context of a status from its job id."""
    return job_id.partition("/")[2]


async def compare_statuses(context: Context, repo: str, window: Window) -> int:
    """Store what GitHub says of trusted heads with open statuses; returns how many statuses were behind."""
    shas = await _open_heads(context, repo, window)
    behind = 0
    for sha in shas:
        try:
            await collection.spend_call(context, repo)
            client = context.app_for(repo).by_name(repo, statuses="read")
            combined = await client.getitem(
                f"/repos/{repo}/commits/{sha}/status{{?per_page}}", {"per_page": "100"}
            )
        except OverBudget:
            return behind
        except GitHubRefused as error:  # the App need not have the permission any more
            log.info("commit statuses cannot be read", repo=repo, reason=str(error))
            return behind
        async with context.store.transaction() as tx:
            for status in _deliveries(combined):
                behind += await inbox.store_delivery(tx, status)
    return behind


def _version(data: JsonObject, at: int | None, state: str) -> str:
    """Return a text that sorts by time, and within one second by how grave the state is."""
    told = {
        name: data.get(name)
        for name in ("id", "sha", "context", "state", "description", "target_url", "updated_at")
    }
    digest = hashlib.sha256(msgspec.json.encode(told, order="deterministic")).hexdigest()
    return f"{at or 0:015d}:{RANKS.get(state, 0)}:{digest}"


def _split(context: str) -> tuple[str, str]:
    """Return workflow and job: the parts before and after the first slash or colon."""
    separator = SEPARATOR.search(context)
    if separator is None or not separator.start() or not context[separator.end() :].strip():
        return "", context
    return context[: separator.start()].strip(), context[separator.end() :].strip()


def _only_branch(data: JsonObject) -> str | None:
    """Return the branch that a commit is the head of, where GitHub names a single one."""
    branches: Any = data.get("branches")
    return (
        tables.read_text(branches[0], "name") if isinstance(branches, list) and len(branches) == 1 else None
    )


async def _open_heads(context: Context, repo: str, window: Window) -> list[str]:
    now = context.clock.now()
    async with context.store.read() as tx:
        period = (max(window.since, now - DAYS * DAY), window.complete_until)
        statuses = await tables.read_open_statuses(tx, repo, received=period, limit=LOOKED_AT)
        ids = await repositories.read_ids(tx, repo) if statuses else set()
        repository = await rows.repository(tx, ids) if ids else None
    default = repository["default_branch"] if repository else None
    patterns = context.settings.of(CollectSettings).ci_trusted_branches
    heads = [
        row["head_sha"]
        for row in statuses
        if row["head_sha"] and is_trusted(row, default_branch=default, patterns=patterns)
    ]
    return list(dict.fromkeys(heads))[:COMMITS_MOST]


def _deliveries(combined: Any) -> list[Incoming]:
    """Return the statuses of a commit as deliveries: pending ones say nothing new."""
    sha, repository = read_member(combined, ("sha",), Kind.TEXT), combined.get("repository")
    deliveries = []
    for status in combined.get("statuses") or ():
        if status.get("state") == "pending":
            continue
        body = {**status, "sha": sha, "repository": repository}
        content = f"status {sha} {status.get('id')} {status.get('state')} {status.get('updated_at')}"
        deliveries.append(to_incoming(content_guid(content), "status", body, source="api"))
    return deliveries
