"""Writing what happened before the demo into its database: what a bot that had run then would have written."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.app import make_context
from bot.console.common import feature_settings
from bot.core.settings_loading import load
from bot.oot.allowlist.versions import refresh
from bot.oot.results import dispatches, jobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.demo.past_reports import PastDispatch, PastHead, PastJob

SENT_AFTER = 2_000  # milliseconds from a push to its dispatches
LISTED_BEFORE = 10 * 86_400_000  # milliseconds from the backends' listing to the first push


async def write_past(environ: Mapping[str, str], heads: Sequence[PastHead]) -> None:
    """Write the allowlist, the dispatches of these commits, and the jobs that answered them into a bot's database.

    `environ` has its options. What features observe, such as sinks, is noted as for a running bot.
    """
    settings, _ = load(environ, Path(os.devnull), features=feature_settings())
    clock = _PastClock()
    async with make_context(settings, clock=clock, inline=True) as context:
        clock.at = heads[0].at - LISTED_BEFORE
        await refresh(context)
        for head in heads:
            clock.at = head.at + SENT_AFTER
            async with context.store.transaction() as tx:
                await _write_head(tx, settings, head)


class _PastClock:
    """The time at which something is written: set for each commit."""

    def __init__(self) -> None:
        self.at = 0

    def now(self) -> int:
        """Return that time."""
        return self.at

    async def sleep(self, seconds: float) -> None:
        """Let it pass."""
        self.at += round(seconds * 1000)


async def _write_head(tx: Transaction, settings: Settings, head: PastHead) -> None:
    guid = str(uuid.uuid5(uuid.NAMESPACE_OID, head.sha))
    for dispatch in head.dispatches:
        row = _dispatch_row(settings, head, dispatch, guid)
        await dispatches.add_dispatch(tx, row)
        if dispatch.silent:
            tx.note_changed("oot_dispatch", [row])
        job_rows = [_job_row(row, head, job) for job in dispatch.jobs]
        await jobs.add_jobs(tx, {job["job_key"]: job for job in job_rows})


def _dispatch_row(settings: Settings, head: PastHead, dispatch: PastDispatch, guid: str) -> dict[str, Any]:
    pull = head.pull
    return {
        "id": dispatches.dispatch_id(guid, dispatch.backend),
        "delivery_id": guid,
        "source_guid": guid,
        "upstream_repo": settings.upstream_repo[0],
        "event_type": "pull_request",
        "action": "opened" if head.first else "synchronize",
        "pr_number": pull.number,
        "head_sha": head.sha,
        "base_sha": pull.base_sha,
        "base_ref": pull.base_ref,
        "labels": [],
        "backend": dispatch.backend,
        "backend_key": dispatch.backend.casefold(),
        "level": dispatch.level,
        "device": dispatch.device,
        "state": "not_run" if dispatch.silent else "sent",
        "attempts": 1,
        "created_at": head.at + SENT_AFTER,
        "dispatched_at": head.at + SENT_AFTER,
        "heard_at": None,
        "token_jti": guid,
        "answers": "some" if dispatch.silent else None,
        "run_id": None,
        "error": None,
    }


def _job_row(dispatch: Mapping[str, Any], head: PastHead, job: PastJob) -> dict[str, Any]:
    started = dispatch["dispatched_at"] + job.waited
    ended = started + job.ran
    failed, tests = len(job.failed), job.kind.tests or None
    row: dict[str, Any] = {
        **jobs.BLANK,
        "dispatch_id": dispatch["id"],
        "status": "completed",
        "conclusion": job.conclusion,
        "downstream_repo": dispatch["backend"],
        "upstream_repo": dispatch["upstream_repo"],
        "pr_number": head.pull.number,
        "head_sha": head.sha,
        "delivery_id": dispatch["delivery_id"],
        "workflow_run_url": job.url,
        "workflow_name": "CI",
        "job_name": job.kind.name,
        "run_id": str(job.run_id),
        "run_attempt": 1,
        "queue_time": job.waited / 1000,
        "execution_time": job.ran / 1000,
        "started_at": started,
        "completed_at": ended,
        "total_tests": tests,
        "passed_tests": tests and tests - failed,
        "failed_tests": tests and failed,
        "skipped_tests": tests and 0,
        "failed_tests_json": list(job.failed) or None,
        "downstream_repo_level": dispatch["level"],
        "event_type": "pull_request",
        "source": "callback",
        "flags": {},
        "received_at": started,
        "updated_at": ended,
    }
    return row | {"job_key": jobs.job_key(row)}
