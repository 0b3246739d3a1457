"""What runs tested, file by file, beside what is usual, and which failures the selection of tests missed."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.db.rows import select
from bot.evidence.tests import result_rows, rows
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import FAILING, NO_TIME, Code, outcome_of
from bot.evidence.tests.parse.texts import without_ending
from bot.evidence.tests.rows import JOB
from bot.evidence.tests.tables import (
    BASELINE,
    JOB_KEY,
    test,
    test_class,
    test_exclusion,
    test_failure,
    test_job,
    test_summary,
)
from bot.evidence.tests.verdict import Verdict
from bot.ingest import repositories
from bot.ingest.tables import records
from bot.job_reports import documents
from bot.job_reports.documents import DAY_MS
from bot.job_reports.tables import MissedFailure, MissedTestRow, td_miss
from bot.jobs.tables import branch_commit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.evidence.tests.parse.block import Block
    from bot.evidence.tests.tables import TestJobRow, TestRow
    from bot.queue.tasks import Task

SLOWER_TIMES, SLOWER_MS = 1.5, 30_000  # times as long, and so much longer
VALUES_AT_ONCE, IDS_AT_ONCE = 500, 5_000  # values of one statement, and ids looked up at once
ROWS_MOST = 100_000
JOBS_MOST = 100  # of one run that says what is usual
TEST, TEST_CLASS, SUMMARY = test.c, test_class.c, test_summary.c
FAILURES_MOST = 2_000
MISSES_MOST = 200
NEW_VERDICTS = (Verdict.NEW.value, Verdict.NEW_TEST.value)
MISS, FAILURE, TEST_JOB, EXCLUSION, BRANCH_COMMIT = (
    td_miss.c,
    test_failure.c,
    test_job.c,
    test_exclusion.c,
    branch_commit.c,
)
PULL_HEAD = records["pull_head"].c
FAILURE_WINDOW = 2 * DAY_MS  # failures that are looked at


class FileChange(StrEnum):
    """How a file differs from the newest trusted run of the same jobs."""

    NEW = "new"
    GONE = "gone"
    LEFT_OUT = "left_out"  # on purpose, by selection
    FEWER = "fewer"
    SLOWER = "slower"
    SAME = "same"


CHANGE_ORDER = (
    FileChange.GONE,
    FileChange.FEWER,
    FileChange.LEFT_OUT,
    FileChange.SLOWER,
    FileChange.NEW,
    FileChange.SAME,
)


class FileCount(NamedTuple):
    """The tests of a file."""

    tests: int = 0
    successes: int = 0
    skipped: int = 0
    failures: int = 0
    errors: int = 0
    time_ms: int = 0

    def plus(self, other: FileCount) -> FileCount:
        """Return the sum of both."""
        return FileCount(*(mine + more for mine, more in zip(self, other, strict=True)))

    @property
    def ran(self) -> int:
        """Those that were not skipped."""
        return self.tests - self.skipped


class FileComparison(NamedTuple):
    """A file in this run, beside what is usual."""

    file: str
    now: FileCount
    usual: FileCount
    change: FileChange


class NamedMissedTest(NamedTuple):
    """A test that selection missed."""

    row: MissedTestRow
    test: TestRow


def add_up_files(counts: Iterable[tuple[str, FileCount]]) -> dict[str, FileCount]:
    """Return the sums by file."""
    counts_by_file: dict[str, FileCount] = {}
    for file, count in counts:
        counts_by_file[file] = counts_by_file.get(file, FileCount()).plus(count)
    return counts_by_file


def count_block(block: Block, file_of: Mapping[int, str]) -> dict[str, FileCount]:
    """Return the counts of a job's block by file; skip tests whose file is no longer known."""
    return add_up_files(
        (file_of[test_id], _count_test(code, time))
        for test_id, code, time in zip(block.ids, block.codes, block.times, strict=True)
        if test_id in file_of
    )


def compare_files(
    now: Mapping[str, FileCount], usual: Mapping[str, FileCount], left_out: Iterable[str]
) -> list[FileComparison]:
    """Return each file, missing ones first; `left_out` are names without their ending."""
    absent = set(left_out)
    nothing = FileCount()
    lines = [
        FileComparison(
            file,
            mine := now.get(file, nothing),
            known := usual.get(file, nothing),
            _change_of_file(file, mine, known, absent),
        )
        for file in {*now, *usual}
    ]
    return sorted(
        lines, key=lambda line: (CHANGE_ORDER.index(line.change), line.now.ran - line.usual.ran, line.file)
    )


async def counts_of_jobs(tx: Transaction, jobs: Sequence[TestJobRow]) -> dict[str, FileCount]:
    """Return the tests of some jobs by file: from sums if there are any, else from all cases."""
    summed, counted = await _summed(tx, [job["generation"] for job in jobs])
    missing = [job["generation"] for job in jobs if job["generation"] not in counted]
    parts = [summed]
    for content in (await rows.blocks_of_jobs(tx, missing)).values():
        decoded = await asyncio.to_thread(block.decode, content)
        files = await _files_of_tests(tx, decoded.ids)
        parts.append(await asyncio.to_thread(count_block, decoded, files))
    return add_up_files(count for part in parts for count in part.items())


async def usual_counts(tx: Transaction, job: TestJobRow) -> dict[str, FileCount]:
    """Return the tests of a job's family by file in the newest trusted run before it."""
    of_family = (BASELINE, JOB.repository_id == job["repository_id"], JOB.family == job["family"])
    newest = sa.select(JOB.run_id, JOB.run_attempt).where(
        *of_family, JOB.at < job["at"], JOB.run_id != job["run_id"]
    )
    run = (await tx.run(newest.order_by(JOB.at.desc()).limit(1))).one_or_none()
    if run is None:
        return {}
    same = (JOB.run_id == run.run_id, JOB.run_attempt == run.run_attempt)
    generations = (
        await tx.run(sa.select(JOB.generation).where(*of_family, *same).limit(JOBS_MOST))
    ).scalars()
    return (await _summed(tx, generations))[0]


async def new_failures(tx: Transaction, owners: Collection[int], *, since: int) -> list[MissedFailure]:
    """Return tests that newly failed on a commit that brought a pull request to a trusted branch."""
    joined = (
        test_failure.join(test_job, TEST_JOB.generation == FAILURE.generation)
        .join(test, test.c.id == FAILURE.test_id)
        .join(test_class, test_class.c.id == test.c.class_id)
        .join(
            branch_commit,
            (BRANCH_COMMIT.sha == TEST_JOB.head_sha)
            & (BRANCH_COMMIT.repository_id == TEST_JOB.repository_id),
        )
    )
    query = select(
        MissedFailure, test_job, test_failure, test_class, pr_number=BRANCH_COMMIT.pr_number, at=FAILURE.at
    ).select_from(joined)
    query = query.where(
        FAILURE.repository_id.in_(sorted(owners)),
        FAILURE.at >= since,
        FAILURE.trusted,
        FAILURE.verdict.in_(NEW_VERDICTS),
        FAILURE.outcome.in_(sorted(FAILING)),
    )
    query = query.where(BRANCH_COMMIT.pr_number.is_not(None)).order_by(
        FAILURE.at, FAILURE.generation, FAILURE.test_id
    )
    return await tx.fetch(query.limit(FAILURES_MOST))


async def files_left_out(tx: Transaction, repository_id: int, number: int) -> dict[str, int]:
    """Return the files that the last jobs of a pull request left out, each with a run that did so."""
    heads = sa.select(PULL_HEAD.head_sha).where(
        PULL_HEAD.repository_id == repository_id, PULL_HEAD.number == number
    )
    same = sa.and_(*(EXCLUSION[name] == TEST_JOB[name] for name in JOB_KEY))
    query = (
        sa.select(EXCLUSION.run_id, EXCLUSION.files)
        .select_from(test_exclusion.join(test_job, same))
        .where(
            TEST_JOB.repository_id == repository_id,
            TEST_JOB.head_sha.in_(heads),
            TEST_JOB.pr_number == number,
        )
    )
    return {file: run_id for run_id, files in await tx.run(query.order_by(TEST_JOB.at)) for file in files}


async def add_misses(tx: Transaction, misses: Sequence[MissedTestRow]) -> None:
    """Store missed tests; known ones stay as they are."""
    await tx.run(tx.insert(td_miss).on_conflict_do_nothing(), list(misses))
    tx.note_changed("td_miss", misses)


async def misses_of_run(tx: Transaction, repository_id: int, run_id: int) -> list[NamedMissedTest]:
    """Return what selection missed of the tests that failed in a run."""
    query = select(MissedTestRow, td_miss).where(MISS.repository_id == repository_id, MISS.run_id == run_id)
    misses = await tx.fetch(query.order_by(MISS.file, MISS.test_id).limit(MISSES_MOST))
    tests = await result_rows.tests_by_id(tx, {miss["test_id"] for miss in misses})
    return [NamedMissedTest(miss, tests[miss["test_id"]]) for miss in misses if miss["test_id"] in tests]


async def find_misses(context: Context, _task: Task) -> None:
    """Find tests that failed lately on trusted branches, and that selection had missed."""
    async with context.store.read() as tx:
        owners = {
            id_ for repo in context.settings.upstream_repo for id_ in await repositories.read_ids(tx, repo)
        }
        failures = await new_failures(tx, owners, since=tx.now - FAILURE_WINDOW)
        pulls = {(failure["repository_id"], failure["pr_number"]) for failure in failures}
        left_out = {pull: await files_left_out(tx, *pull) for pull in sorted(pulls)}
    misses: list[MissedTestRow] = [
        {**failure, "left_out_run_id": run_id, "day": failure["at"] // DAY_MS}
        for failure in failures
        if (
            run_id := left_out[failure["repository_id"], failure["pr_number"]].get(
                without_ending(failure["file"])
            )
        )
    ]
    if misses:
        async with context.store.transaction() as tx:
            await add_misses(tx, misses)


async def prune_misses(context: Context) -> dict[str, int]:
    """Delete missed tests past the retention of results."""
    return await documents.delete_old(context, {"tests missed by selection": td_miss})


def _count_test(code: int, time: int) -> FileCount:
    outcome = outcome_of(code)
    failed = outcome in FAILING and outcome != Code.ERROR
    return FileCount(
        tests=1,
        successes=int(outcome not in FAILING and outcome != Code.SKIPPED),
        skipped=int(outcome == Code.SKIPPED),
        failures=int(failed),
        errors=int(outcome == Code.ERROR),
        time_ms=0 if time == NO_TIME else time,
    )


def _change_of_file(file: str, now: FileCount, usual: FileCount, absent: set[str]) -> FileChange:
    if not now.tests:
        return FileChange.LEFT_OUT if without_ending(file) in absent else FileChange.GONE
    if not usual.tests:
        return FileChange.NEW
    if now.ran * 2 < usual.ran:
        return FileChange.FEWER
    slower = now.time_ms > usual.time_ms * SLOWER_TIMES and now.time_ms - usual.time_ms > SLOWER_MS
    return FileChange.SLOWER if slower else FileChange.SAME


async def _summed(tx: Transaction, generations: Sequence[int]) -> tuple[dict[str, FileCount], set[int]]:
    """Return the sums by file of the jobs that have some, and which jobs these are."""
    counted, counts = set(), []
    for at in range(0, len(generations), VALUES_AT_ONCE):
        query = (
            sa.select(
                SUMMARY.generation, SUMMARY.invoking_file, TEST_CLASS.file, SUMMARY.tests, SUMMARY.successes,
                SUMMARY.skipped, SUMMARY.failures, SUMMARY.errors, SUMMARY.time_ms,
            )
            .select_from(test_summary.join(test_class, TEST_CLASS.id == SUMMARY.class_id))
            .where(SUMMARY.generation.in_(generations[at : at + VALUES_AT_ONCE]))
        )  # fmt: skip
        for generation, invoking, file, *numbers in await tx.run(query.limit(ROWS_MOST)):
            counted.add(generation)
            counts.append((invoking or file, FileCount(*numbers)))
    return add_up_files(counts), counted


async def _files_of_tests(tx: Transaction, ids: Sequence[int]) -> dict[int, str]:
    """Return the files of some tests with ascending ids, close to one another."""
    files: dict[int, str] = {}
    names: dict[int, str] = {}
    for at in range(0, len(ids), IDS_AT_ONCE):
        some = ids[at : at + IDS_AT_ONCE]
        query = sa.select(TEST.id, TEST.class_id).where(TEST.id.between(some[0], some[-1])).limit(ROWS_MOST)
        classes = dict((await tx.run(query)).all())
        names |= await _files(tx, {classes[test_id] for test_id in some if test_id in classes} - names.keys())
        files |= {test_id: names[classes[test_id]] for test_id in some if classes.get(test_id) in names}
    return files


async def _files(tx: Transaction, class_ids: Collection[int]) -> dict[int, str]:
    files: dict[int, str] = {}
    wanted = sorted(class_ids)
    for at in range(0, len(wanted), VALUES_AT_ONCE):
        query = sa.select(TEST_CLASS.id, TEST_CLASS.file).where(
            TEST_CLASS.id.in_(wanted[at : at + VALUES_AT_ONCE])
        )
        files |= dict((await tx.run(query)).all())
    return files
