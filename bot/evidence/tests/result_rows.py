"""Bounded reads of test results for pages: failures, tests by digest, lists, slow tests, search."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import sqlalchemy as sa

from bot.db.rows import begins, select
from bot.db.statements import RowStatement, Statement
from bot.evidence.tests import rows
from bot.evidence.tests.parse import block
from bot.evidence.tests.parse.block import FAILING
from bot.evidence.tests.parse.texts import DIGEST, SHOWN
from bot.evidence.tests.rows import DAY, JOB, JOBS, TESTS
from bot.evidence.tests.tables import (
    BASELINE,
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
    JobBranch,
    JobPull,
    JobRun,
    JobUpstream,
    NamedTestRow,
    SuiteRow,
    SummaryRow,
    TestCanonical,
    TestJobRow,
    TestRow,
    test,
    test_class,
    test_env,
    test_failure,
    test_job,
    test_state,
    test_summary,
)
from bot.evidence.tests.verdict import Verdict
from bot.ingest.tables import records
from bot.oot.results.jobs import dispatched_later, passed_later

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction

FAILURE, TEST, CLASS, STATE = test_failure.c, test.c, test_class.c, test_state.c
USUAL_JOBS = 600  # that say what a family usually runs
MOST_JOBS = 2_000  # of a commit or run
MOST_FAILURES = 5_000  # of a commit or run
MOST_SUITES = 2_000  # of a file
CHUNK = 500  # values in one statement
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
# in a later attempt of the run
_TESTED_AGAIN = (
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
PLACE = test_class.alias("place").c
FAILED = FAILURE.outcome.in_(sorted(FAILING))
GONE = "gone"
NOT_THEIRS = (Verdict.FLAKY.value, Verdict.LIKELY_FLAKY.value)
COLUMNS = [TEST.id, TEST.digest, CLASS.file, CLASS.suite, TEST.name]
FAILURES = sa.func.count().filter(FAILED)
FLAKY = sa.func.count().filter(FAILURE.flaky)
LAST = sa.func.max(FAILURE.at)
ORDERS = {"failures": FAILURES, "flaky": FLAKY, "recent": LAST}
NEWEST_JOBS = 200
BATCH = 50  # blocks that are held at a time
SHORTEST = 1_000  # milliseconds of a test that is slow
LOOKED_AT = 1_000  # tests whose name begins so, of all repositories
SCANNED = 20_000  # suites


class FailingRow(
    FailureKey, FailureOutcome, FailureAttempts, FailureSource, FailureVerdict, FailureHead, FailureTime,
    TestCanonical, NamedTestRow,
):  # fmt: skip
    """A failed or flaky case with its test, without its long texts."""


class FailureOfTest(
    FailingRow, FailureStack, FailureProperties, FailureTrust, JobRun, JobUpstream, JobBranch, JobPull
):
    """A failed or flaky case with its stack trace and its job."""

    flags: dict[str, str] | None  # of the job's run report, as the next
    report_properties: dict[str, str] | None
    job_name: str
    workflow: str


class SuiteCount(TypedDict):
    """A suite of a file."""

    id: int
    suite: str
    tests: int


@dataclass(frozen=True, kw_only=True)
class TestFilter:
    """Which tests to list; empty texts choose all."""

    repository_ids: Collection[int]
    since: int
    words: str = ""  # in file, suite or name
    file: str = ""
    suite: str = ""
    state: str = ""
    env_group: str = ""


class ListedTest(NamedTestRow):
    """A test with its failures in a window."""

    id: int
    failures: int
    flaky: int  # times it passed only when it was tried again, or failed after a pass
    commits: int  # on which it failed or was flaky
    failed_at: int | None  # the last time


class FlakyTest(ListedTest):
    """What a flaky test cost."""

    blocked: int  # jobs of pull requests that it failed
    lost_ms: int  # how long these took


class SlowTest(NamedTuple):
    """A test, and its longest time in one of the newest jobs."""

    time_ms: int
    test_id: int


async def public_repositories(tx: Transaction, repository_ids: Collection[int]) -> set[int]:
    """Return the repositories that are public according to GitHub."""
    return set((await tx.run(PUBLIC, {"ids": sorted(repository_ids)})).scalars())


async def failing_cases(
    tx: Transaction, generations: Sequence[int], *such: sa.ColumnElement[bool], limit: int = MOST_FAILURES
) -> list[FailingRow]:
    """Return the failing and flaky cases of jobs, or only those that meet `such`."""
    cases: list[FailingRow] = []
    for at in range(0, len(generations), CHUNK):
        query = select(FailingRow, test_failure, test, test_class).select_from(_WITH_TEST)
        query = query.where(FAILURE.generation.in_(generations[at : at + CHUNK]), *such)
        ordered = query.order_by(FAILURE.generation, FAILURE.test_id).limit(limit - len(cases))
        cases += await tx.fetch(ordered)
        if len(cases) >= limit:
            break
    return cases


async def located_failures(
    tx: Transaction, generations: Sequence[int], verdicts: Collection[str], *, limit: int
) -> list[FailingRow]:
    """Return the failures of jobs with one of these verdicts and a known source line."""
    such = (
        FAILURE.line.is_not(None),
        FAILURE.outcome.in_(sorted(FAILING)),
        FAILURE.verdict.in_(sorted(verdicts)),
    )
    return await failing_cases(tx, generations, *such, limit=limit)


async def failures_of(
    tx: Transaction, test_ids: Collection[int], *, since: int, limit: int
) -> list[FailureOfTest]:
    """Return the newest failures of tests among the results that are shown."""
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
    """Return tests by id."""
    tests: dict[int, TestRow] = {}
    wanted = sorted(ids)
    for at in range(0, len(wanted), CHUNK):
        query = rows.TESTS.where(test.c.id.in_(wanted[at : at + CHUNK]))
        tests |= {row["id"]: row for row in await tx.fetch(query)}
    return tests


async def test_by_digest(tx: Transaction, repository_ids: Collection[int], shown: str) -> TestRow | None:
    """Return a test of these repositories by its digest, as in addresses."""
    first = bytes.fromhex(shown)
    last = first + b"\xff" * (DIGEST - SHOWN // 2)
    query = rows.TESTS.where(
        test.c.repository_id.in_(sorted(repository_ids)), test.c.digest >= first, test.c.digest <= last
    )
    return await tx.fetch_first(query.order_by(test.c.last_at.desc()).limit(1))


async def same_tests(tx: Transaction, canonical: Collection[int], *, limit: int) -> list[TestRow]:
    """Return the same test on every device and in every repository."""
    query = rows.TESTS.where(test.c.canonical.in_(sorted(canonical)))
    return await tx.fetch(query.order_by(test.c.repository_id, test.c.id).limit(limit))


async def suites_of_file(tx: Transaction, repository_ids: Collection[int], file: str) -> list[SuiteCount]:
    """Return the suites of a file, with the number of tests in each."""
    counted = sa.select(sa.func.count()).where(test.c.class_id == test_class.c.id).scalar_subquery()
    query = select(SuiteCount, test_class, tests=counted).where(
        test_class.c.repository_id.in_(sorted(repository_ids)), test_class.c.file == file
    )
    return await tx.fetch(query.order_by(test_class.c.suite).limit(MOST_SUITES))


async def newest_summaries(tx: Transaction, class_ids: Collection[int], *, limit: int) -> list[SummaryRow]:
    """Return the newest summaries of suites in trusted runs and of backends."""
    c = test_summary.c
    query = select(SummaryRow, test_summary).where(c.class_id.in_(sorted(class_ids)))
    return await tx.fetch(query.order_by(c.at.desc(), c.generation.desc()).limit(limit))


async def jobs_by_generation(tx: Transaction, generations: Collection[int]) -> dict[int, TestJobRow]:
    """Return the jobs, by generation, whose results are the ones shown."""
    jobs: dict[int, TestJobRow] = {}
    wanted = sorted(generations)
    for at in range(0, len(wanted), CHUNK):
        query = JOBS.where(JOB.generation.in_(wanted[at : at + CHUNK]))
        jobs |= {row["generation"]: row for row in await tx.fetch(query)}
    return jobs


async def full_sha(tx: Transaction, repository_ids: Collection[int], sha: str) -> str | None:
    """Complete an abbreviated SHA from the commits with results."""
    query = sa.select(JOB.head_sha).where(
        JOB.repository_id.in_(sorted(repository_ids)),
        JOB.head_sha >= sha,
        JOB.head_sha < sha + "g",
    )
    whole = (await tx.run(query.order_by(JOB.head_sha).limit(1))).scalar()
    return None if whole is None else str(whole)


async def trusted_before(tx: Transaction, repository_ids: Collection[int], job: TestJobRow) -> str | None:
    """Return the newest earlier trusted commit on which the same jobs ran."""
    query = sa.select(JOB.head_sha).where(
        BASELINE,
        JOB.repository_id.in_(sorted(repository_ids)),
        JOB.family == job["family"],
        JOB.at < job["at"],
        JOB.head_sha != job["head_sha"],
    )
    before = (await tx.run(query.order_by(JOB.at.desc()).limit(1))).scalar()
    return None if before is None else str(before)


async def flaky_in(tx: Transaction, test_id: int, generations: Sequence[int]) -> set[int]:
    """Return the jobs in which a test was flaky."""
    query = sa.select(FAILURE.generation).where(
        FAILURE.test_id == test_id, FAILURE.flaky, FAILURE.generation.in_(generations)
    )
    return set((await tx.run(query)).scalars())


async def jobs_testing(tx: Transaction, upstream_sha: str) -> list[TestJobRow]:
    """Return the jobs of upstream and backends that tested a commit; the caller decides which may be shown."""
    return await tx.fetch(TESTING, {"of_commit": upstream_sha})


async def usual_counts(
    tx: Transaction, repository_id: int, family: str, *, before: int, limit: int
) -> list[int]:
    """Return how many tests a family ran, all shards together, in each of its trusted runs, the newest first."""
    jobs = (
        sa.select(
            JOB.run_id,
            JOB.run_attempt,
            JOB.at,
            (JOB.tests - JOB.skipped).label("ran"),
        )
        .where(
            BASELINE,
            JOB.repository_id == repository_id,
            JOB.family == family,
            JOB.at < before,
        )
        .order_by(JOB.at.desc(), JOB.generation)
        .limit(USUAL_JOBS)
        .subquery()
    )
    newest = sa.func.max(jobs.c.at)
    query = sa.select(sa.func.sum(jobs.c.ran)).group_by(jobs.c.run_id, jobs.c.run_attempt)
    return [int(value) for value in (await tx.run(query.order_by(newest.desc()).limit(limit))).scalars()]


async def failing_tests(
    tx: Transaction, choice: TestFilter, *, order: str, before: tuple[int, int] | None, limit: int
) -> list[ListedTest]:
    """Return tests with failures in the window, most or newest failures first; `before` is a value and an id."""
    value = ORDERS[order]
    query = _failures(choice, *COLUMNS, *_sums()).having(value > 0).group_by(*COLUMNS)
    if before:
        query = query.having(sa.or_(value < before[0], sa.and_(value == before[0], TEST.id > before[1])))
    return await tx.rows_as(ListedTest, query.order_by(value.desc(), TEST.id).limit(limit))


async def tests_by_age(tx: Transaction, choice: TestFilter, *, after: int, limit: int) -> list[ListedTest]:
    """Return all tests in the order in which they were first seen."""
    query = _without_failures(choice).where(TEST.id > after)
    return await tx.rows_as(ListedTest, query.order_by(TEST.id).limit(limit))


async def filtered_tests(tx: Transaction, choice: TestFilter, ids: Sequence[int]) -> list[ListedTest]:
    """Return the tests with these ids that pass the filter."""
    tests: list[ListedTest] = []
    for at in range(0, len(ids), CHUNK):
        query = _without_failures(choice).where(TEST.id.in_(ids[at : at + CHUNK]))
        tests += await tx.rows_as(ListedTest, query)
    return tests


async def flaky_tests(tx: Transaction, choice: TestFilter, *, limit: int) -> list[FlakyTest]:
    """Return the tests that were flaky in the window, the costliest first."""
    own = records["workflow_job"].c
    blocked = sa.and_(FAILED, FAILURE.verdict.in_(NOT_THEIRS), JOB.pr_number.is_not(None))
    took = sa.case((blocked, sa.func.coalesce(own.completed_at - own.started_at, 0)), else_=0)
    cost = sa.func.count().filter(blocked)
    columns = [
        *COLUMNS,
        *_sums(),
        cost.label("blocked"),
        sa.cast(sa.func.sum(took), sa.BigInteger).label("lost_ms"),
    ]
    joined = _joined().outerjoin(records["workflow_job"], own.id == JOB.job_id)
    query = (
        sa.select(*columns).select_from(joined).where(*_window(choice), *_of_tests(choice)).group_by(*COLUMNS)
    )
    query = query.having(sa.or_(FLAKY > 0, cost > 0))
    return await tx.rows_as(FlakyTest, query.order_by(cost.desc(), FLAKY.desc(), TEST.id).limit(limit))


async def env_groups(tx: Transaction, repository_ids: Collection[int], *, limit: int) -> list[str]:
    """Return the groups of environments in which a repository's tests ran."""
    query = (
        sa.select(test_env.c.env_group)
        .where(test_env.c.id.in_(sa.select(JOB.env_id).where(JOB.repository_id.in_(sorted(repository_ids)))))
        .distinct()
    )
    return list((await tx.run(query.order_by(test_env.c.env_group).limit(limit))).scalars())


async def slowest_tests(
    tx: Transaction, repository_ids: Collection[int], *, since: int, limit: int
) -> list[SlowTest]:
    """Return the slowest tests, the slowest first."""
    query = sa.select(JOB.generation).where(
        BASELINE, JOB.repository_id.in_(sorted(repository_ids)), JOB.at >= since
    )
    generations = list((await tx.run(query.order_by(JOB.at.desc()).limit(NEWEST_JOBS))).scalars())
    times: dict[int, int] = {}
    for at in range(0, len(generations), BATCH):
        for content in (await rows.blocks_of_jobs(tx, generations[at : at + BATCH])).values():
            _add(times, content)
    slow = heapq.nlargest(limit, ((time, -test_id) for test_id, time in times.items()))
    return [SlowTest(time, -test_id) for time, test_id in slow]


async def tests_by_name(tx: Transaction, owners: Collection[int], start: str, *, limit: int) -> list[TestRow]:
    """Return the tests of repositories whose names have this prefix."""
    some = sa.select(TEST.id).where(begins(TEST.name, start, sqlite=tx.sqlite)).limit(LOOKED_AT)
    ids = list((await tx.run(some)).scalars())
    query = TESTS.where(TEST.id.in_(ids), TEST.repository_id.in_(sorted(owners)))
    order = (
        sa.func.length(TEST.name),
        TEST.name,
        TEST.last_at.desc(),
        TEST.id,
    )
    return await tx.fetch(query.order_by(*order).limit(limit))


async def suites_by_name(
    tx: Transaction, owners: Collection[int], text: str, *, limit: int
) -> list[SuiteRow]:
    """Return suites with a text in their name or file, among those first seen most recently."""
    newest = sa.select(test_class).where(CLASS.repository_id.in_(sorted(owners)))
    some = newest.order_by(CLASS.id.desc()).limit(SCANNED).subquery()
    there = some.c.suite.icontains(text, autoescape=True) | some.c.file.icontains(text, autoescape=True)
    query = select(SuiteRow, some).where(there)
    return await tx.fetch(query.order_by(some.c.last_at.desc(), some.c.id).limit(limit))


def _without_failures(choice: TestFilter) -> sa.Select[Any]:
    nothing = [sa.literal(0).label(name) for name in ("failures", "flaky", "commits")]
    query = sa.select(*COLUMNS, *nothing, sa.null().label("failed_at"))
    query = query.select_from(test.join(test_class, CLASS.id == TEST.class_id))
    # + 0: to be read in the order of ids, not by the index of repositories, which would sort all of their tests
    return query.where((TEST.repository_id + 0).in_(sorted(choice.repository_ids)), *_of_tests(choice))


def _sums() -> list[sa.ColumnElement[Any]]:
    commits = sa.func.count(sa.distinct(FAILURE.head_sha))
    return [
        FAILURES.label("failures"),
        FLAKY.label("flaky"),
        commits.label("commits"),
        LAST.label("failed_at"),
    ]


def _joined() -> sa.FromClause:
    """Join the failures of the results that are shown with their jobs and tests."""
    return (
        test_failure.join(test_job, JOB.generation == FAILURE.generation)
        .join(test, TEST.id == FAILURE.test_id)
        .join(test_class, CLASS.id == TEST.class_id)
    )


def _failures(choice: TestFilter, *columns: Any) -> sa.Select[Any]:
    return sa.select(*columns).select_from(_joined()).where(*_window(choice), *_of_tests(choice))


def _window(choice: TestFilter) -> list[sa.ColumnElement[bool]]:
    these = [
        FAILURE.repository_id.in_(sorted(choice.repository_ids)),
        FAILURE.at >= choice.since,
    ]
    if choice.env_group:
        envs = sa.select(test_env.c.id).where(test_env.c.env_group == choice.env_group)
        these.append(JOB.env_id.in_(envs))
    return these


def _of_tests(choice: TestFilter) -> list[sa.ColumnElement[bool]]:
    these: list[sa.ColumnElement[bool]] = []
    if choice.file:
        these.append(CLASS.file == choice.file)
    if choice.suite:
        these.append(CLASS.suite == choice.suite)
    for word in choice.words.split():
        # places are few beside tests: they are looked through once, not with every test
        places = sa.or_(*(column.icontains(word, autoescape=True) for column in (PLACE.suite, PLACE.file)))
        owned = PLACE.repository_id.in_(sorted(choice.repository_ids))
        placed = TEST.class_id.in_(sa.select(PLACE.id).where(owned, places))
        these.append(sa.or_(TEST.name.icontains(word, autoescape=True), placed))
    if choice.state == GONE:
        these += _gone(choice)
    elif choice.state:
        these.append(sa.exists().where(STATE.test_id == TEST.id, STATE.state == choice.state))
    return these


def _gone(choice: TestFilter) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for tests that trusted runs once had, but none of those in the window."""
    first = choice.since - choice.since % DAY  # it is kept on which day a test was last seen
    other = test.alias("other").c
    owned = other.repository_id == TEST.repository_id
    # of each repository, so that where trusted runs stopped nothing is gone
    ran = sa.exists().where(owned, other.trusted_last_at >= first)
    return [TEST.trusted_last_at < first, ran]


def _add(times: dict[int, int], content: bytes) -> None:
    decoded = block.decode(content)
    for test_id, time in zip(decoded.ids, decoded.times, strict=True):
        if SHORTEST <= time < block.NO_TIME and time > times.get(test_id, 0):
            times[test_id] = time
