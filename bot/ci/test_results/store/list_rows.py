"""Lists of a repository's tests: by failures, flakiness, last failure or age; and what flaky ones cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.test_results.job_tables import test_job
from bot.ci.test_results.parse.block import FAILING
from bot.ci.test_results.tables import NamedTestRow, test, test_class, test_env, test_failure, test_state
from bot.ci.test_results.verdict import Verdict
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction

FAILURE, TEST, CLASS, JOB, STATE = test_failure.c, test.c, test_class.c, test_job.c, test_state.c
PLACE = test_class.alias("place").c
FAILED = FAILURE.outcome.in_(sorted(FAILING))
GONE = "gone"
DAY = 86_400_000  # milliseconds
CHUNK = 500  # values in one statement
NOT_THEIRS = (Verdict.FLAKY.value, Verdict.LIKELY_FLAKY.value)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which tests; empty texts choose all."""

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


COLUMNS = [TEST.id, TEST.digest, CLASS.file, CLASS.suite, TEST.name]
FAILURES = sa.func.count().filter(FAILED)
FLAKY = sa.func.count().filter(FAILURE.flaky)
LAST = sa.func.max(FAILURE.at)
ORDERS = {"failures": FAILURES, "flaky": FLAKY, "recent": LAST}


async def failing_tests(
    tx: Transaction, choice: Choice, *, order: str, before: tuple[int, int] | None, limit: int
) -> list[ListedTest]:
    """Return tests with failures in the window, the most or newest first; `before` is a value and an id."""
    value = ORDERS[order]
    query = _failures(choice, *COLUMNS, *_sums()).having(value > 0).group_by(*COLUMNS)
    if before:
        query = query.having(sa.or_(value < before[0], sa.and_(value == before[0], TEST.id > before[1])))
    return await tx.rows_as(ListedTest, query.order_by(value.desc(), TEST.id).limit(limit))


async def tests_by_age(tx: Transaction, choice: Choice, *, after: int, limit: int) -> list[ListedTest]:
    """Return tests in the order in which they were first seen, whether they fail or not."""
    query = _without_failures(choice).where(TEST.id > after)
    return await tx.rows_as(ListedTest, query.order_by(TEST.id).limit(limit))


async def chosen_tests(tx: Transaction, choice: Choice, ids: Sequence[int]) -> list[ListedTest]:
    """Return those of some tests that are chosen."""
    found: list[ListedTest] = []
    for at in range(0, len(ids), CHUNK):
        query = _without_failures(choice).where(TEST.id.in_(ids[at : at + CHUNK]))
        found += await tx.rows_as(ListedTest, query)
    return found


async def flaky_tests(tx: Transaction, choice: Choice, *, limit: int) -> list[FlakyTest]:
    """Return tests that were flaky in the window, those that cost the most first."""
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


def _without_failures(choice: Choice) -> sa.Select[Any]:
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
    """Return failures of the results that are shown, with their jobs and tests."""
    return (
        test_failure.join(test_job, JOB.generation == FAILURE.generation)
        .join(test, TEST.id == FAILURE.test_id)
        .join(test_class, CLASS.id == TEST.class_id)
    )


def _failures(choice: Choice, *columns: Any) -> sa.Select[Any]:
    return sa.select(*columns).select_from(_joined()).where(*_window(choice), *_of_tests(choice))


def _window(choice: Choice) -> list[sa.ColumnElement[bool]]:
    these = [FAILURE.repository_id.in_(sorted(choice.repository_ids)), FAILURE.at >= choice.since]
    if choice.env_group:
        envs = sa.select(test_env.c.id).where(test_env.c.env_group == choice.env_group)
        these.append(JOB.env_id.in_(envs))
    return these


def _of_tests(choice: Choice) -> list[sa.ColumnElement[bool]]:
    these: list[sa.ColumnElement[bool]] = []
    if choice.file:
        these.append(CLASS.file == choice.file)
    if choice.suite:
        these.append(CLASS.suite == choice.suite)
    for word in choice.words.split():
        # places are few beside tests: they are looked through once, not with every test
        places = sa.or_(*(one.icontains(word, autoescape=True) for one in (PLACE.suite, PLACE.file)))
        owned = PLACE.repository_id.in_(sorted(choice.repository_ids))
        found = TEST.class_id.in_(sa.select(PLACE.id).where(owned, places))
        these.append(sa.or_(TEST.name.icontains(word, autoescape=True), found))
    if choice.state == GONE:
        these += _gone(choice)
    elif choice.state:
        these.append(sa.exists().where(STATE.test_id == TEST.id, STATE.state == choice.state))
    return these


def _gone(choice: Choice) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that trusted runs had a test, but none in the window, which has such runs."""
    first = choice.since - choice.since % DAY  # it is kept on which day a test was last seen
    other = test.alias("other").c
    owned = other.repository_id == TEST.repository_id
    # of each repository, so that where trusted runs stopped nothing is gone
    ran = sa.exists().where(owned, other.trusted_last_at >= first)
    return [TEST.trusted_last_at < first, ran]
