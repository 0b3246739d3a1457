"""Test files that gave no report because their job died: a failed job hides failures if only what it reported counts.

The job's shard reported in each of the last three trusted runs, and now has less than half of the files that all of
those had: each that is missing becomes a case of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import sqlalchemy as sa

from bot.ci.test_results.job_tables import BASELINE, JobKeyRow, test_job
from bot.ci.test_results.parse.block import Code, code_of
from bot.ci.test_results.parse.identity import digest
from bot.ci.test_results.parse.parsed import Exceptional, MergedGroup
from bot.ci.test_results.store import job_parts
from bot.ci.test_results.store.rows import DAY, JOB, job_key
from bot.ci.test_results.tables import test_class, test_summary
from bot.core.errors import GiveUp
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.parse.parsed import Merged
    from bot.ci.test_results.store.job_facts import Facts
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

TASK = "test_crashes"
AFTER = 1200.0  # seconds after a run's end: by then its artifacts are read
CONCLUSIONS = ("failure", "timed_out")
RUNS = 3
AGE = 7 * DAY
JOBS_MOST = 50
FILES_MOST = 500  # of a job
AGAIN_MOST = 200  # jobs that are looked at again for one
NAME = "(no report)"
RECORD, RUN, SUMMARY = records["workflow_job"].c, records["workflow_run"].c, test_summary.c


async def missing_files(tx: Transaction, key: JobKeyRow, facts: Facts, merged: Merged) -> list[str]:
    """Return the test files that a job was to report and did not."""
    if facts.conclusion not in CONCLUSIONS:
        return []
    usual = await _usual(tx, key, facts)
    reported = {file for group in merged.groups for file in (group.file, group.invoking_file) if file}
    if not usual or 2 * len(usual & reported) >= len(usual):
        return []
    return sorted(usual - reported)[:FILES_MOST]


async def _usual(tx: Transaction, key: JobKeyRow, facts: Facts) -> set[str]:
    """Return the files that the job's shard reported in each of the last trusted runs, none where these are too few."""
    name = facts.name
    query = sa.select(JOB.generation, JOB.upstream_sha, JOB.head_sha).where(
        BASELINE,
        JOB.repository_id == key["repository_id"],
        JOB.family == name.shard_free,
        JOB.shard.is_not_distinct_from(name.shard),
        JOB.at.between(facts.at - AGE, facts.at),
        JOB.job_id != key["job_id"],
    )
    by_commit: dict[str, list[int]] = {}
    for row in await tx.rows(query.order_by(JOB.at.desc(), JOB.generation).limit(JOBS_MOST)):
        by_commit.setdefault(row["upstream_sha"] or row["head_sha"], []).append(row["generation"])
    by_commit.pop(facts.tested, None)
    if len(by_commit) < RUNS:
        return set()
    found = [await _files(tx, generations) for generations in list(by_commit.values())[:RUNS]]
    return set.intersection(*found)


async def _files(tx: Transaction, generations: Collection[int]) -> set[str]:
    query = (
        sa.select(test_class.c.file)
        .select_from(test_summary.join(test_class, test_class.c.id == SUMMARY.class_id))
        .where(SUMMARY.generation.in_(generations), test_class.c.file != "")
    )
    return set((await tx.run(query.distinct())).scalars())


def group_without_report(file: str) -> MergedGroup:
    """Return the case of a file that gave no report."""
    message = f"{file} gave no report: its job ended before"
    return MergedGroup(
        file=file,
        suite="",
        invoking_file="",
        digests=digest(file, "", NAME),
        codes=bytes([code_of(Code.CRASHED, 1)]),
        times=b"\xff\xff\xff\xff",  # not known
        exceptional=[Exceptional(0, False, 1, 1, "", message, "", "")],
        names=msgspec.Raw(msgspec.msgpack.encode([NAME])),
        declared={},
    )


async def request_again(tx: Transaction, trusted: TestJobRow) -> None:
    """Have failed jobs looked at again that began after a trusted one of their name, whose files are known only now.

    A job that left as many reports as the trusted one lacks none of them.
    """
    at = trusted["at"]
    of_run = sa.and_(RUN.repository_id == RECORD.repository_id, RUN.id == RECORD.run_id)
    of_job = sa.and_(
        JOB.repository_id == RECORD.repository_id,
        JOB.run_id == RECORD.run_id,
        JOB.run_attempt == RECORD.run_attempt,
        JOB.job_id == RECORD.id,
    )
    unread = sa.and_(JOB.job_id.is_(None), RECORD.completed_at <= tx.now - round(AFTER * 1000))
    joined = records["workflow_run"].join(records["workflow_job"], of_run).outerjoin(test_job, of_job)
    query = (
        sa.select(RECORD.repository_id, RECORD.run_id, RECORD.run_attempt, RECORD.id)
        .select_from(joined)
        .where(
            RUN.received_at >= at,
            RUN.repository_id == trusted["repository_id"],
            RUN.conclusion.in_(CONCLUSIONS),
            RECORD.name == trusted["name"],
            RECORD.workflow_name == trusted["workflow"],
            RECORD.conclusion.in_(CONCLUSIONS),
            RECORD.started_at.between(at, at + AGE),
            RECORD.id != trusted["job_id"],
            sa.or_(unread, JOB.files < trusted["files"]),
        )
    )
    for row in await tx.run(query.distinct().limit(AGAIN_MOST)):
        job_parts.request(tx, job_key(*row))


async def request_jobs_without_reports(context: Context, task: Task) -> None:
    """Look at failed jobs of a run that left no report at all. Key: repository, run and attempt, by `/`."""
    repository_id, run_id, attempt = _key(task.key)
    async with context.store.transaction() as tx:
        reported = sa.exists().where(
            JOB.repository_id == repository_id,
            JOB.run_id == run_id,
            JOB.run_attempt == attempt,
            JOB.job_id == RECORD.id,
        )
        query = sa.select(RECORD.id).where(
            RECORD.repository_id == repository_id,
            RECORD.run_id == run_id,
            RECORD.run_attempt == attempt,
            RECORD.conclusion.in_(CONCLUSIONS),
            ~reported,
        )
        for job_id in (await tx.run(query.order_by(RECORD.id).limit(1_000))).scalars():
            job_parts.request(tx, job_key(repository_id, run_id, attempt, job_id))


def _key(text: str) -> tuple[int, int, int]:
    try:
        repository_id, run_id, attempt = map(int, text.split("/"))
    except ValueError:
        raise GiveUp(f"{text!r} names no run") from None
    return repository_id, run_id, attempt
