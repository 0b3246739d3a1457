"""Reading test results for pages: failing tests of jobs, tests by digest, suites of a file; all of it bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa

from bot.ci.test_results import rows
from bot.ci.test_results.block import FAILING
from bot.ci.test_results.identity import DIGEST, SHOWN
from bot.ci.test_results.rows import JOB, WITHOUT_BLOCKS, SummaryRow, TestJobRow, TestRow
from bot.ci.test_results.tables import (
    BASELINE,
    test,
    test_class,
    test_failure,
    test_job,
    test_state,
    test_summary,
)
from bot.db.statements import Statement
from bot.ingest.tables import records
from bot.oot.results.store.overtaken import dispatched_later, passed_later

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction

FAILURE = test_failure.c
MOST_JOBS = 2_000  # of a commit or run
MOST_FAILURES = 5_000  # of a commit or run
MOST_SUITES = 2_000  # of a file
CHUNK = 500  # values in one statement


class FailingRow(TypedDict):
    """A case that failed, or was flaky, with its test; without its long texts."""

    generation: int
    test_id: int
    repository_id: int
    digest: bytes
    canonical: int
    file: str
    suite: str
    name: str
    outcome: int
    flaky: bool
    attempts: int
    failed_attempts: int
    time_ms: int | None
    type: str
    message: str
    source_file: str | None  # where it failed, as its report says
    line: int | None
    signature: str | None
    verdict: str | None
    evidence: Any
    head_sha: str
    at: int


class FailureOfTest(FailingRow):
    """The same, with its stack trace and the job."""

    stack: str
    properties: dict[str, str] | None  # of the attempt, as its run report has them
    flags: dict[str, str] | None  # of the job's run report, as the next
    report_properties: dict[str, str] | None
    run_id: int
    run_attempt: int
    job_id: int
    job_name: str
    workflow: str
    head_branch: str | None
    upstream_repo: str | None
    pr_number: int | None
    trusted: bool
    env_id: int


class StateRow(TypedDict):
    """The state of a test in a group of environments."""

    repository_id: int
    test_id: int
    env_group: str
    state: str
    since: int
    evidence: Any
    issue: str | None
    by: str
    at: int


class SuiteRow(TypedDict):
    """A suite of a file."""

    id: int
    suite: str
    tests: int


_FAILING = [
    *(FAILURE[name] for name in (
        "generation", "test_id", "repository_id", "outcome", "flaky", "attempts", "failed_attempts", "time_ms", "type",
        "message", "source_file", "line", "signature", "verdict", "evidence", "head_sha", "at",
    )),
    test.c.digest, test.c.canonical, test.c.name, test_class.c.file, test_class.c.suite,
]  # fmt: skip
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
TESTING = Statement(
    sa.select(*WITHOUT_BLOCKS)
    .where(
        JOB.upstream_sha == sa.bindparam("of_commit"),
        ~passed_later(JOB.repository_id, JOB.job_id),
        ~sa.exists().where(*_TESTED_AGAIN),
        ~dispatched_later(JOB.dispatch_id),
    )
    .order_by(JOB.at, JOB.generation)
    .limit(MOST_JOBS)
)


async def public(tx: Transaction, repository_ids: Collection[int]) -> set[int]:
    """Return those of these repositories that are public by GitHub's word."""
    return set((await tx.run(PUBLIC, {"ids": sorted(repository_ids)})).scalars())


async def failing(
    tx: Transaction, generations: Sequence[int], *such: sa.ColumnElement[bool], limit: int = MOST_FAILURES
) -> list[FailingRow]:
    """Return the failing and flaky cases of some jobs, or `such` of them."""
    found: list[FailingRow] = []
    for at in range(0, len(generations), CHUNK):
        query = sa.select(*_FAILING).select_from(_WITH_TEST)
        query = query.where(FAILURE.generation.in_(generations[at : at + CHUNK]), *such)
        ordered = query.order_by(FAILURE.generation, FAILURE.test_id).limit(limit - len(found))
        found += await tx.rows_as(FailingRow, ordered)
        if len(found) >= limit:
            break
    return found


async def located(
    tx: Transaction, generations: Sequence[int], verdicts: Collection[str], *, limit: int
) -> list[FailingRow]:
    """Return those of some jobs' failures with one of these verdicts whose line in the source is known."""
    such = (
        FAILURE.line.is_not(None),
        FAILURE.outcome.in_(sorted(FAILING)),
        FAILURE.verdict.in_(sorted(verdicts)),
    )
    return await failing(tx, generations, *such, limit=limit)


async def failures_of(
    tx: Transaction, test_ids: Collection[int], *, since: int, limit: int
) -> list[FailureOfTest]:
    """Return the newest failures of some tests, of the results that are shown."""
    columns = [*_FAILING, FAILURE.stack, FAILURE.properties, JOB.flags,
               JOB.properties.label("report_properties"), FAILURE.trusted, JOB.run_id, JOB.run_attempt, JOB.job_id,
               JOB.name.label("job_name"), JOB.workflow, JOB.head_branch, JOB.upstream_repo, JOB.pr_number,
               JOB.env_id]  # fmt: skip
    joined = _WITH_TEST.join(test_job, JOB.generation == FAILURE.generation)
    query = sa.select(*columns).select_from(joined)
    query = query.where(FAILURE.test_id.in_(sorted(test_ids)), FAILURE.at >= since)
    return await tx.rows_as(FailureOfTest, query.order_by(FAILURE.at.desc()).limit(limit))


async def tests_by_id(tx: Transaction, ids: Collection[int]) -> dict[int, TestRow]:
    """Return some tests by id."""
    found: dict[int, TestRow] = {}
    wanted = sorted(ids)
    for at in range(0, len(wanted), CHUNK):
        query = rows.tests().where(test.c.id.in_(wanted[at : at + CHUNK]))
        found |= {row["id"]: row for row in await tx.rows_as(TestRow, query)}
    return found


async def test_by_digest(tx: Transaction, repository_ids: Collection[int], shown: str) -> TestRow | None:
    """Return a test of these repositories by the digits of its digest that addresses have."""
    first = bytes.fromhex(shown)
    last = first + b"\xff" * (DIGEST - SHOWN // 2)
    query = rows.tests().where(
        test.c.repository_id.in_(sorted(repository_ids)), test.c.digest >= first, test.c.digest <= last
    )
    return await tx.row_as(TestRow, query.order_by(test.c.last_at.desc()).limit(1))


async def same_tests(tx: Transaction, canonical: Collection[int], *, limit: int) -> list[TestRow]:
    """Return the tests of all repositories that are the same but for the device."""
    query = rows.tests().where(test.c.canonical.in_(sorted(canonical)))
    return await tx.rows_as(TestRow, query.order_by(test.c.repository_id, test.c.id).limit(limit))


async def suites(tx: Transaction, repository_ids: Collection[int], file: str) -> list[SuiteRow]:
    """Return the suites of a file, and how many tests each has."""
    counted = sa.select(sa.func.count()).where(test.c.class_id == test_class.c.id).scalar_subquery()
    query = sa.select(test_class.c.id, test_class.c.suite, counted.label("tests")).where(
        test_class.c.repository_id.in_(sorted(repository_ids)), test_class.c.file == file
    )
    return await tx.rows_as(SuiteRow, query.order_by(test_class.c.suite).limit(MOST_SUITES))


async def newest_summaries(tx: Transaction, class_ids: Collection[int], *, limit: int) -> list[SummaryRow]:
    """Return the newest sums of some suites in jobs, of trusted runs and backends."""
    c = test_summary.c
    query = sa.select(test_summary).where(c.class_id.in_(sorted(class_ids)))
    return await tx.rows_as(SummaryRow, query.order_by(c.at.desc(), c.generation.desc()).limit(limit))


async def jobs_by_generation(tx: Transaction, generations: Collection[int]) -> dict[int, TestJobRow]:
    """Return those of some jobs whose results are the ones shown."""
    found: dict[int, TestJobRow] = {}
    wanted = sorted(generations)
    for at in range(0, len(wanted), CHUNK):
        query = sa.select(*WITHOUT_BLOCKS).where(JOB.generation.in_(wanted[at : at + CHUNK]))
        found |= {row["generation"]: row for row in await tx.rows_as(TestJobRow, query)}
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


async def states_of(tx: Transaction, test_ids: Collection[int]) -> list[StateRow]:
    """Return the states of some tests, by environment."""
    query = sa.select(test_state).where(test_state.c.test_id.in_(sorted(test_ids)))
    return await tx.rows_as(StateRow, query.order_by(test_state.c.test_id, test_state.c.env_group))


async def jobs_testing(tx: Transaction, upstream_sha: str) -> list[TestJobRow]:
    """Return what upstream's own jobs and backends tested on a commit; what may be shown, the caller decides."""
    return await tx.rows_as(TestJobRow, TESTING, {"of_commit": upstream_sha})


async def usual_counts(
    tx: Transaction, repository_id: int, family: str, *, before: int, limit: int
) -> list[int]:
    """Return how many tests a family of jobs ran in its newest trusted runs, all shards together, the newest first."""
    ran, newest = sa.func.sum(JOB.tests - JOB.skipped), sa.func.max(JOB.at)
    query = (
        sa.select(ran)
        .where(BASELINE, JOB.repository_id == repository_id, JOB.family == family, JOB.at < before)
        .group_by(JOB.run_id, JOB.run_attempt)
    )
    return [int(value) for value in (await tx.run(query.order_by(newest.desc()).limit(limit))).scalars()]
