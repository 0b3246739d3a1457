"""Receivers of test reports and of excluded files: which job each belongs to, and how long it is kept."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.core.errors import GiveUp
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.receivers import MIB, Fetched, Job, Receiver, reported_job
from bot.evidence.collect.tables import ci_fetch, ci_upload
from bot.evidence.tests.parse.block import EXCLUSIONS, RULES, ExcludedFiles, StoredReports
from bot.evidence.tests.parse.texts import without_ending
from bot.evidence.tests.rows import DAY, GENERATIONS, JOB, is_of_job, job_key
from bot.evidence.tests.tables import (
    BASELINE,
    JOB_KEY,
    test,
    test_class,
    test_day,
    test_exclusion,
    test_failure,
    test_job,
    test_loss,
    test_part,
    test_quota,
    test_state,
    test_summary,
)
from bot.ingest import repositories
from bot.ingest.retention import delete_in_batches, delete_rows
from bot.jobs.runs import jobs_of_run
from bot.jobs.settings import CollectSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.evidence.tests.tables import JobKeyRow, TestJobRow

TASK = "test_results"
TOGETHER = 5.0  # seconds in which further artifacts of a job are awaited
AT_LATEST = 60.0
PART_MOST = 256 * MIB
JOBS_MOST = 300  # of the runs that say what is usual
ROWS_MOST = 50_000
EXCLUSION, SUMMARY = test_exclusion.c, test_summary.c
EXCLUSION_KEY = [EXCLUSION[name] for name in JOB_KEY]
PARTS_KEPT = 14  # days in which a job's artifacts may still come one by one
BATCH = 200
PART = test_part.c


async def parse_options(_context: Context, fetched: Fetched) -> Any:
    """Return the parser's options for a file that is not an archive."""
    name = "report.jsonl" if fetched.kind == "runreport" else "report.xml"
    return {"name": name, "artifact": fetched.name}


async def store_part(
    tx: Transaction, _context: Context, fetched: Fetched, stored: StoredReports, blob: str | None
) -> None:
    """Store a part of a job, replacing what was stored for the same artifact."""
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
    request_job_results(tx, key)


async def find_key(tx: Transaction, fetched: Fetched, job_ids: Sequence[int]) -> JobKeyRow:
    """Return the key of the job that a file belongs to; `job_ids` are the ids that the file itself names."""
    if fetched.source == "upload":
        return await _key_of_upload(tx, fetched)
    job_id = fetched.job_id  # also of another CI, whose run has a number as its job does
    if job_id is None and len(job_ids) == 1:
        known = await jobs_of_run(tx, fetched.repository_id, fetched.run_id)
        jobs = [Job(job["id"], job["name"] or "", job["run_attempt"] or 1) for job in known]
        job_id = reported_job(job_ids[0], jobs).job_id
    if job_id is None:  # artifacts of different jobs may hold the same tests: each name is a job of its own
        job_id = -_number("artifact", fetched.name)
    return job_key(fetched.repository_id, fetched.run_id, fetched.run_attempt, job_id)


def request_job_results(tx: Transaction, key: JobKeyRow) -> None:
    """Request that a job's results be rebuilt from its parts."""
    tx.enqueue(TASK, task_key(key), delay=TOGETHER, max_wait=AT_LATEST)


def task_key(key: JobKeyRow) -> str:
    """Return the key of a job's task."""
    return "/".join(map(str, key.values()))


def parse_key(text: str) -> JobKeyRow:
    """Parse a task's key; raises GiveUp if it names no job."""
    try:
        return job_key(*map(int, text.split("/")))
    except (TypeError, ValueError):
        raise GiveUp(f"{text!r} names no job") from None


REPORTS_RECEIVER = Receiver(
    store=store_part,
    answer=StoredReports,
    options=parse_options,
    most_written=PART_MOST,
    blob_prefix="results",
)


async def store_exclusions(
    tx: Transaction, _context: Context, fetched: Fetched, excluded: ExcludedFiles, _blob: str | None
) -> None:
    """Store the files that a job left out; files that belong to no job cannot be attributed."""
    if fetched.job_id is None:
        return
    row = {
        "repository_id": fetched.repository_id,
        "run_id": fetched.run_id,
        "run_attempt": fetched.run_attempt,
        "job_id": fetched.job_id,
        "object_id": fetched.object_id,
    }
    values = {"files": excluded.files, "received_at": tx.now}
    await tx.upsert(test_exclusion, [row | values], replaced=list(values))
    tx.note_changed("test_exclusion", [row])


async def excluded_files(tx: Transaction, jobs: Sequence[TestJobRow]) -> set[str]:
    """Return the files that jobs left out."""
    keys = [(job["repository_id"], job["run_id"], job["run_attempt"], job["job_id"]) for job in jobs]
    exclusions = await tx.run(sa.select(EXCLUSION.files).where(tx.among(EXCLUSION_KEY, keys)))
    return {file for files in exclusions.scalars() for file in files}


async def usual_tests(
    tx: Transaction, repository_id: int, family: str, files: Collection[str], *, before: int, runs: int
) -> int:
    """Return how many tests of these files a family usually runs: the median of its newest trusted runs."""
    of_family = (
        sa.select(JOB.generation, JOB.run_id, JOB.run_attempt)
        .where(
            BASELINE,
            JOB.repository_id == repository_id,
            JOB.family == family,
            JOB.at < before,
        )
        .order_by(JOB.at.desc(), JOB.generation)
        .limit(JOBS_MOST)
    )
    by_run: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in await tx.run(of_family):
        by_run[row.run_id, row.run_attempt].append(row.generation)
    newest = list(by_run.values())[:runs]
    counts = []
    for generations in newest:
        query = (
            sa.select(test_class.c.file, SUMMARY.invoking_file, SUMMARY.tests - SUMMARY.skipped)
            .select_from(test_summary.join(test_class, test_class.c.id == SUMMARY.class_id))
            .where(SUMMARY.generation.in_(generations))
        )
        summaries = (await tx.run(query.limit(ROWS_MOST))).all()
        counts.append(
            sum(
                ran
                for file, invoking, ran in summaries
                if without_ending(file) in files or without_ending(invoking) in files
            )
        )
    return round(median(counts)) if counts else 0


EXCLUSIONS_RECEIVER = Receiver(store=store_exclusions, answer=ExcludedFiles, members=EXCLUSIONS)


async def prune_results(context: Context) -> dict[str, int]:
    """Delete what is past its retention."""
    now, settings = context.clock.now(), context.settings
    results = now - settings.of(CollectSettings).ci_result_retention_days * DAY
    records = now - settings.record_retention_days * DAY
    deleted = {
        "parts of test results": await _parts(context, now - PARTS_KEPT * DAY),
        "blocks of test results": await _blocks(context, results),
        "results of no job": 0,
    }
    for table in (test_failure, test_summary):
        deleted[f"rows of {table.name}"] = await delete_rows(context, table, table.c.at < results)
        deleted["results of no job"] += await delete_rows(context, table, _unnamed(table, now))
    for table, old in (
        (test_part, PART.received_at < records),
        (test_exclusion, test_exclusion.c.received_at < results),
        (test_job, JOB.at < records),
        (test_day, test_day.c.day < records // DAY),
        (test_state, test_state.c.at < records),
        (test_loss, test_loss.c.at < results),
        (test_quota, test_quota.c.day < now // DAY - 1),
        # blocks name tests by their ids: these go once no block can have them
        (test, sa.and_(test.c.last_at < results, test.c.trusted_last_at.is_(None))),
        (test, test.c.last_at < min(records, results)),
        (test_class, test_class.c.last_at < min(records, results)),
    ):
        deleted[f"rows of {table.name}"] = await delete_rows(context, table, old)
    return deleted


async def _key_of_upload(tx: Transaction, fetched: Fetched) -> JobKeyRow:
    query = sa.select(ci_upload).where(ci_upload.c.id == -fetched.object_id)
    (upload,) = await tx.rows(query)
    owner = upload["repository_id"] or max(await repositories.read_ids(tx, upload["backend"]), default=0)
    return job_key(
        owner or -_number(upload["backend_key"]),
        -_number(upload["backend_key"], upload["dispatch_id"] or str(upload["commit_sha"]), upload["run_id"]),
        upload["run_attempt"],
        -_number(upload["workflow"], upload["job"]),
    )


def _number(*texts: str) -> int:
    """Hash texts to a positive number of 47 bits, which any JSON reader keeps exactly."""
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).digest()
    return (int.from_bytes(digest[:6], "big") >> 1) + 1


def _unnamed(table: sa.Table, now: int) -> sa.ColumnElement[bool]:
    """Return the condition for rows written by a process that died before any job referred to them."""
    named = sa.exists().where(JOB.generation == table.c.generation)
    since, until = ((now - days * DAY) * GENERATIONS for days in (3, 1))
    return sa.and_(table.c.generation.between(since, until), ~named)


async def _parts(context: Context, before: int) -> int:
    """Delete the blobs of parts; the jobs built from them stay as they are."""

    async def find(tx: Transaction) -> list[str]:
        old = sa.select(PART.blob).where(PART.received_at < before, PART.blob.is_not(None))
        return list((await tx.run(old.order_by(PART.received_at).limit(BATCH))).scalars())

    async def forget(tx: Transaction, blobs: Sequence[str]) -> None:
        for table in (test_part, ci_fetch):
            await tx.run(sa.update(table).where(table.c.blob.in_(blobs)).values(blob=None))
        for blob in blobs:
            await context.resource(BLOBS).delete(blob)

    return await delete_in_batches(context, find, forget)


async def _blocks(context: Context, before: int) -> int:
    """Delete the blocks of jobs."""
    keys = [JOB[name] for name in JOB_KEY]

    async def find(tx: Transaction) -> list[tuple[int, ...]]:
        old = sa.select(*keys).where(
            JOB.at < before, sa.or_(JOB.block.is_not(None), JOB.counted_block.is_not(None))
        )
        return [tuple(row) for row in (await tx.run(old.order_by(JOB.at).limit(BATCH))).all()]  # fmt: skip

    async def forget(tx: Transaction, jobs: Sequence[tuple[int, ...]]) -> None:
        these = tx.among(keys, jobs)
        await tx.run(sa.update(test_job).where(these).values(block=None, counted_block=None))

    return await delete_in_batches(context, find, forget)
