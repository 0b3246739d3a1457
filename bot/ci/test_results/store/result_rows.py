"""Reading test results for pages: failing tests of jobs, tests by digest, suites of a file; all of it bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.ci.test_results.job_tables import (
    BASELINE,
    JobBranch,
    JobPull,
    JobRun,
    JobUpstream,
    TestJobRow,
    test_job,
)
from bot.ci.test_results.parse.block import FAILING
from bot.ci.test_results.parse.identity import DIGEST, SHOWN
from bot.ci.test_results.store import rows
from bot.ci.test_results.store.rows import JOB, JOBS
from bot.ci.test_results.tables import (
    FailureAttempts,
    FailureHead,
    FailureKey,
    FailureOutcome,
    FailureProperties,
    FailureSource,
    FailureStack,
    FailureTime,
    FailureTrust,
    FailureVerdict,
    NamedTestRow,
    SummaryRow,
    TestCanonical,
    TestRow,
    test,
    test_class,
    test_failure,
    test_summary,
)
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.ingest.tables import records
from bot.oot.results.store.overtaken import dispatched_later, passed_later

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction

FAILURE = test_failure.c
USUAL_JOBS = 600  # that say what a family usually runs
MOST_JOBS = 2_000  # of a commit or run
MOST_FAILURES = 5_000  # of a commit or run
MOST_SUITES = 2_000  # of a file
CHUNK = 500  # values in one statement


class FailingRow(
    FailureKey, FailureOutcome, FailureAttempts, FailureSource, FailureVerdict, FailureHead, FailureTime,
    TestCanonical, NamedTestRow,
):  # fmt: skip
    """A case that failed, or was flaky, with its test; without its long texts."""


class FailureOfTest(
    FailingRow, FailureStack, FailureProperties, FailureTrust, JobRun, JobUpstream, JobBranch, JobPull
):
    """The same, with its stack trace and the job."""

    flags: dict[str, str] | None  # of the job's run report, as the next
    report_properties: dict[str, str] | None
    job_name: str
    workflow: str


class SuiteCount(TypedDict):
    """A suite of a file."""

    id: int
    suite: str
    tests: int


_WITH_TEST = test_failure.join(test, test.c.id == FAILURE.test_id).join(
    test_class, test_class.c.id == test.c.class_id
)


_REPOSITORY = records["repository"].c
PUBLIC = Statement(
    sa.select(_REPOSITORY.repository_id).where(
        _REPOSITORY.repository_id.in_(sa.bindparam("ids", expanding=True)), _REPOSITORY.private.is_(False)
    )
)
_again = test_job.alias("again")
_TESTED_AGAIN = (  # in a later attempt of the run
    _again.c.repository_id == JOB.repository_id,
    _again.c.run_id == JOB.run_id,
    _again.c.run_attempt > JOB.run_attempt,
    _again.c.name == JOB.name,
)
TESTING = RowStatement(
    JOBS.where(
        JOB.upstream_sha == sa.bindparam("of_commit"),
        ~passed_later(JOB.repository_id, JOB.job_id),
        ~sa.exists().where(*_TESTED_AGAIN),
        ~dispatched_later(JOB.dispatch_id),
    )
    .order_by(JOB.at, JOB.generation)
    .limit(MOST_JOBS)
)


async def public_repositories(tx: Transaction, repository_ids: Collection[int]) -> set[int]:
    """Return those of these repositories that are public by GitHub's word."""
    return set((await tx.run(PUBLIC, {"ids": sorted(repository_ids)})).scalars())


async def failing_cases(
    tx: Transaction, generations: Sequence[int], *such: sa.ColumnElement[bool], limit: int = MOST_FAILURES
) -> list[FailingRow]:
    """Return the failing and flaky cases of some jobs, or `such` of them."""
    found: list[FailingRow] = []
    for at in range(0, len(generations), CHUNK):
        query = select(FailingRow, test_failure, test, test_class).select_from(_WITH_TEST)
        query = query.where(FAILURE.generation.in_(generations[at : at + CHUNK]), *such)
        ordered = query.order_by(FAILURE.generation, FAILURE.test_id).limit(limit - len(found))
        found += await tx.fetch(ordered)
        if len(found) >= limit:
            break
    return found


async def located_failures(
    tx: Transaction, generations: Sequence[int], verdicts: Collection[str], *, limit: int
) -> list[FailingRow]:
    """Return those of some jobs' failures with one of these verdicts whose line in the source is known."""
    such = (
        FAILURE.line.is_not(None),
        FAILURE.outcome.in_(sorted(FAILING)),
        FAILURE.verdict.in_(sorted(verdicts)),
    )
    return await failing_cases(tx, generations, *such, limit=limit)


async def failures_of(
    tx: Transaction, test_ids: Collection[int], *, since: int, limit: int
) -> list[FailureOfTest]:
    """Return the newest failures of some tests, of the results that are shown."""
    joined = _WITH_TEST.join(test_job, JOB.generation == FAILURE.generation)
    query = select(
        FailureOfTest,
        test_failure,
        test,
        test_class,
        test_job,
        report_properties=JOB.properties,
        job_name=JOB.name,
    ).select_from(joined)
    query = query.where(FAILURE.test_id.in_(sorted(test_ids)), FAILURE.at >= since)
    return await tx.fetch(query.order_by(FAILURE.at.desc()).limit(limit))


async def tests_by_id(tx: Transaction, ids: Collection[int]) -> dict[int, TestRow]:
    """Return some tests by id."""
    found: dict[int, TestRow] = {}
    wanted = sorted(ids)
    for at in range(0, len(wanted), CHUNK):
        query = rows.TESTS.where(test.c.id.in_(wanted[at : at + CHUNK]))
        found |= {row["id"]: row for row in await tx.fetch(query)}
    return found


async def test_by_digest(tx: Transaction, repository_ids: Collection[int], shown: str) -> TestRow | None:
    """Return a test of these repositories by the digits of its digest that addresses have."""
    first = bytes.fromhex(shown)
    last = first + b"\xff" * (DIGEST - SHOWN // 2)
    query = rows.TESTS.where(
        test.c.repository_id.in_(sorted(repository_ids)), test.c.digest >= first, test.c.digest <= last
    )
    return await tx.fetch_first(query.order_by(test.c.last_at.desc()).limit(1))


async def same_tests(tx: Transaction, canonical: Collection[int], *, limit: int) -> list[TestRow]:
    """Return the tests of all repositories that are the same but for the device."""
    query = rows.TESTS.where(test.c.canonical.in_(sorted(canonical)))
    return await tx.fetch(query.order_by(test.c.repository_id, test.c.id).limit(limit))


async def suites_of_file(tx: Transaction, repository_ids: Collection[int], file: str) -> list[SuiteCount]:
    """Return the suites of a file, and how many tests each has."""
    counted = sa.select(sa.func.count()).where(test.c.class_id == test_class.c.id).scalar_subquery()
    query = select(SuiteCount, test_class, tests=counted).where(
        test_class.c.repository_id.in_(sorted(repository_ids)), test_class.c.file == file
    )
    return await tx.fetch(query.order_by(test_class.c.suite).limit(MOST_SUITES))


async def newest_summaries(tx: Transaction, class_ids: Collection[int], *, limit: int) -> list[SummaryRow]:
    """Return the newest sums of some suites in jobs, of trusted runs and backends."""
    c = test_summary.c
    query = select(SummaryRow, test_summary).where(c.class_id.in_(sorted(class_ids)))
    return await tx.fetch(query.order_by(c.at.desc(), c.generation.desc()).limit(limit))


async def jobs_by_generation(tx: Transaction, generations: Collection[int]) -> dict[int, TestJobRow]:
    """Return those of some jobs whose results are the ones shown."""
    found: dict[int, TestJobRow] = {}
    wanted = sorted(generations)
    for at in range(0, len(wanted), CHUNK):
        query = JOBS.where(JOB.generation.in_(wanted[at : at + CHUNK]))
        found |= {row["generation"]: row for row in await tx.fetch(query)}
    return found


async def full_sha(tx: Transaction, repository_ids: Collection[int], sha: str) -> str | None:
    """Return a whole SHA by its beginning, of commits with results."""
    query = sa.select(JOB.head_sha).where(
        JOB.repository_id.in_(sorted(repository_ids)), JOB.head_sha >= sha, JOB.head_sha < sha + "g"
    )
    found = (await tx.run(query.order_by(JOB.head_sha).limit(1))).scalar()
    return None if found is None else str(found)


async def trusted_before(tx: Transaction, repository_ids: Collection[int], job: TestJobRow) -> str | None:
    """Return the newest trusted commit on which the same jobs ran before."""
    query = sa.select(JOB.head_sha).where(
        BASELINE,
        JOB.repository_id.in_(sorted(repository_ids)),
        JOB.family == job["family"],
        JOB.at < job["at"],
        JOB.head_sha != job["head_sha"],
    )
    found = (await tx.run(query.order_by(JOB.at.desc()).limit(1))).scalar()
    return None if found is None else str(found)


async def flaky_in(tx: Transaction, test_id: int, generations: Sequence[int]) -> set[int]:
    """Return in which of some jobs a test was flaky."""
    query = sa.select(FAILURE.generation).where(
        FAILURE.test_id == test_id, FAILURE.flaky, FAILURE.generation.in_(generations)
    )
    return set((await tx.run(query)).scalars())


async def jobs_testing(tx: Transaction, upstream_sha: str) -> list[TestJobRow]:
    """Return what upstream's own jobs and backends tested on a commit; what may be shown, the caller decides."""
    return await tx.fetch(TESTING, {"of_commit": upstream_sha})


async def usual_counts(
    tx: Transaction, repository_id: int, family: str, *, before: int, limit: int
) -> list[int]:
    """Return how many tests a family of jobs ran in its newest trusted runs, all shards together, the newest first."""
    jobs = (
        sa.select(JOB.run_id, JOB.run_attempt, JOB.at, (JOB.tests - JOB.skipped).label("ran"))
        .where(BASELINE, JOB.repository_id == repository_id, JOB.family == family, JOB.at < before)
        .order_by(JOB.at.desc(), JOB.generation)
        .limit(USUAL_JOBS)
        .subquery()
    )
    newest = sa.func.max(jobs.c.at)
    query = sa.select(sa.func.sum(jobs.c.ran)).group_by(jobs.c.run_id, jobs.c.run_attempt)
    return [int(value) for value in (await tx.run(query.order_by(newest.desc()).limit(limit))).scalars()]
