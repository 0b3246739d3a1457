"""The receiver of test reports: notes which job an artifact or upload is of, and has that job's results made again."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.collect.attribution import Job, reported_job
from bot.ci.collect.receiving import MIB, Fetched, Receiver
from bot.ci.collect.store import runs as collect_rows
from bot.ci.collect.tables import ci_upload
from bot.ci.test_results.parse.parsed import RULES, Stored
from bot.ci.test_results.store.rows import is_of_job, job_key
from bot.ci.test_results.tables import test_part
from bot.core.errors import GiveUp
from bot.ingest import watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.test_results.job_tables import JobKeyRow
    from bot.context import Context
    from bot.db.transaction import Transaction

TASK = "test_results"
TOGETHER = 5.0  # seconds in which further artifacts of a job are awaited
AT_LATEST = 60.0
PART_MOST = 256 * MIB


async def options(_context: Context, fetched: Fetched) -> Any:
    """Return how a file that is no archive is to be read."""
    name = "report.jsonl" if fetched.kind == "runreport" else "report.xml"
    return {"name": name, "artifact": fetched.name}


async def store(
    tx: Transaction, _context: Context, fetched: Fetched, stored: Stored, blob: str | None
) -> None:
    """Note a part of a job, in place of what was noted of the same artifact."""
    key = await find_key(tx, fetched, stored.job_ids)
    values = {
        "kind": fetched.kind,
        "name": fetched.name,
        "blob": blob,
        "unreadable": [{"member": member, "reason": reason} for member, reason in stored.unreadable],
        "notes": [{"member": member, "reason": words} for member, words in stored.notes] or None,
        "received_at": tx.now,
        "rules": RULES,
        "told": fetched.told,
    }
    c = test_part.c
    elsewhere = (c.repository_id == key["repository_id"], c.object_id == fetched.object_id)
    await tx.run(sa.delete(test_part).where(*elsewhere, sa.not_(is_of_job(test_part, key))))
    row = {**key} | {"object_id": fetched.object_id} | values
    await tx.upsert(test_part, [row], replaced=list(values))
    request(tx, key)


async def find_key(tx: Transaction, fetched: Fetched, job_ids: Sequence[int]) -> JobKeyRow:
    """Return the job that a file is of, of the run's; `job_ids` are those that the file names as its own."""
    if fetched.source == "upload":
        return await _key_of_upload(tx, fetched)
    job_id = fetched.job_id  # also of another CI, whose run has a number as its job does
    if job_id is None and len(job_ids) == 1:
        known = await collect_rows.jobs_of_run(tx, fetched.repository_id, fetched.run_id)
        jobs = [Job(job["id"], job["name"] or "", job["run_attempt"] or 1) for job in known]
        job_id = reported_job(job_ids[0], jobs).job_id
    if job_id is None:  # artifacts of different jobs may hold the same tests: each name is a job of its own
        job_id = -_number("artifact", fetched.name)
    return job_key(fetched.repository_id, fetched.run_id, fetched.run_attempt, job_id)


def request(tx: Transaction, key: JobKeyRow) -> None:
    """Have a job's results made again of its parts."""
    tx.enqueue(TASK, task_key(key), delay=TOGETHER, max_wait=AT_LATEST)


def task_key(key: JobKeyRow) -> str:
    """Return a job's key as that of a task."""
    return "/".join(map(str, key.values()))


def parse_key(text: str) -> JobKeyRow:
    """Return the job of a task's key; raises GiveUp where it names none."""
    try:
        return job_key(*map(int, text.split("/")))
    except (TypeError, ValueError):
        raise GiveUp(f"{text!r} names no job") from None


async def _key_of_upload(tx: Transaction, fetched: Fetched) -> JobKeyRow:
    query = sa.select(ci_upload).where(ci_upload.c.id == -fetched.object_id)
    (found,) = await tx.rows(query)
    owner = found["repository_id"] or max(await watched.ids(tx, found["backend"]), default=0)
    return job_key(
        owner or -_number(found["backend_key"]),
        -_number(found["backend_key"], found["dispatch_id"] or str(found["commit_sha"]), found["run_id"]),
        found["run_attempt"],
        -_number(found["workflow"], found["job"]),
    )


def _number(*texts: str) -> int:
    """Return a number above 0 for some texts, of 47 bits: any reader of JSON keeps it exactly."""
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).digest()
    return (int.from_bytes(digest[:6], "big") >> 1) + 1


RECEIVER = Receiver(
    store=store, answer=Stored, options=options, most_written=PART_MOST, blob_prefix="results"
)
