"""Tests that runs have fewer of than before, and flaky tests with what they cost; pages and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.evidence.tests import result_rows
from bot.evidence.tests.failing import LinkedTest
from bot.evidence.tests.losses import LossKind, newest_losses
from bot.evidence.tests.result_rows import TestFilter
from bot.evidence.tests.rows import DAY
from bot.evidence.tests.states import states_of_tests
from bot.evidence.tests.tables import LossRow
from bot.pages.tests import commits
from bot.pages.tests.commits import CACHED
from bot.web import addresses, openapi, parameters
from bot.web.answers import Answer, RowAnswer, fill_struct, one_of
from bot.web.openapi import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.parameters import REPO, REPOSITORY, Parameter
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.db.transaction import Transaction
    from bot.evidence.tests.losses import ListedLoss
    from bot.evidence.tests.result_rows import FlakyTest
    from bot.evidence.tests.tables import StateRow, TestRow
    from bot.web.parameters import Query

LOSS_DAYS = parameters.days("the window of the runs", default=7)
LIMIT = parameters.whole("limit", openapi.MOST_ROWS, "how many rows at most", default=100)
BEFORE = Parameter("before", addresses.before_id, None, (openapi.before(openapi.Number),))
NAMED = 3  # tests that are gone, in a sentence
ROWS = 200
FLAKY_DAYS = parameters.days(default=7)


class LostTests(
    RowAnswer,
    row=LossRow,
    only=(
        "kind", "run_id", "head_sha", "base_sha", "family", "file", "suite", "tests_before", "tests", "skipped_before",
        "skipped", "gone", "examples", "at",
    ),
    rename={"head_sha": "sha", "base_sha": "base", "family": "jobs"},
    frozen=True,
    kw_only=True,
):  # fmt: skip
    """What a suite, or all jobs of a family, lost in a run."""

    kind: Annotated[
        str,
        one_of(LossKind),
        Meta(
            description="lost: a fifth of the tests; skipped: the share rose by a fifth; gone: not there any more"
        ),
    ]
    head_sha: Annotated[
        str, Meta(description="of the commit that was tested: upstream's where a backend tested one")
    ]
    base_sha: Annotated[str, Meta(description="the commit of the trusted run before")]
    family: Annotated[str, Meta(description="workflow and name, without shard and runner")]
    file: Annotated[str, Meta(description="empty, as `suite`: all tests of these jobs")]
    suite: str
    gone: Annotated[int, Meta(description="tests; with kind=gone only")]
    examples: Annotated[list[str], Meta(description="some of these tests, as in their pages' addresses")]


class LostTestsAnswer(Answer, frozen=True, kw_only=True):
    """What complete runs of a repository have less of than the trusted run before"""

    days: int
    lost: list[LostTests]
    next: Annotated[str | None, Meta(description="the `before` of the following page")]


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A loss with the tests that are gone."""

    row: ListedLoss
    examples: list[LinkedTest]

    @property
    def words(self) -> str:
        """The loss in a sentence, with the names of some tests that are gone."""
        names = [test.name for test in self.examples[:NAMED]]
        more = [f"{self.row['gone'] - len(names):,} more"] if self.row["gone"] > len(names) else []
        return (
            f"{describe_loss(self.row)}: {', '.join([*names, *more])}" if names else describe_loss(self.row)
        )


@dataclass(frozen=True, kw_only=True)
class RunLosses:
    """The losses of a repository's runs."""

    repo: str
    days: int
    losses: list[Loss]
    following: str | None


@dataclass(frozen=True, kw_only=True)
class Flaky:
    """A flaky test, and what it cost."""

    test: LinkedTest
    cost: FlakyTest
    states: list[StateRow]


@dataclass(frozen=True, kw_only=True)
class FlakyTests:
    """The flaky tests of a repository."""

    repo: str
    days: int
    flaky: list[Flaky]
    more: bool
    blocked: int
    lost_seconds: float


async def read_lost_tests(query: Query) -> RunLosses:
    """Read the losses of a repository's runs."""
    days, limit, skipped = query[LOSS_DAYS], query[LIMIT], query[BEFORE] or 0
    owners, since = await commits.visible_repositories(query), query.tx.now - days * DAY
    lost = await newest_losses(query.tx, owners, since=since, skipped=skipped, limit=limit + 1)
    return RunLosses(
        repo=query[REPO],
        days=days,
        losses=await with_gone_tests(query.tx, lost[:limit]),
        following=str(skipped + limit) if len(lost) > limit else None,
    )


def lost_page(run_losses: RunLosses) -> dict[str, Any]:
    """Return the values of the page."""
    return {"repo": run_losses.repo, "run_losses": run_losses, "windows": addresses.windows(run_losses.days)}


def lost_json(run_losses: RunLosses) -> LostTestsAnswer:
    """Return the JSON of the losses."""
    lost = [
        fill_struct(LostTests, loss.row, examples=[test.digest for test in loss.examples])
        for loss in run_losses.losses
    ]
    return LostTestsAnswer(days=run_losses.days, lost=lost, next=run_losses.following)


async def with_gone_tests(tx: Transaction, rows: Sequence[ListedLoss]) -> list[Loss]:
    """Add to losses the tests that are gone, if they are still known."""
    known: dict[int, TestRow] = await result_rows.tests_by_id(
        tx, {test_id for row in rows for test_id in row["examples"]}
    )
    return [
        Loss(row=row, examples=_named(known[test_id] for test_id in row["examples"] if test_id in known))
        for row in rows
    ]


def describe_loss(row: ListedLoss) -> str:
    """Describe a loss in a sentence."""
    if row["kind"] == LossKind.GONE:
        return f"{row['gone']:,} {'test is' if row['gone'] == 1 else 'tests are'} gone"
    if row["kind"] == LossKind.SKIPPED:
        before = f"{row['skipped_before']:,} of {row['tests_before']:,}"
        return f"skips {row['skipped']:,} of {row['tests']:,} tests, {before} before"
    return f"{row['tests']:,} of {row['tests_before']:,} tests are left"


LOST_VIEW = View(
    read=read_lost_tests,
    parameters=(REPO, LOSS_DAYS, LIMIT, BEFORE),
    page=Page(path=f"{REPOSITORY}/tests/lost", template="lost.html", values=lost_page),
    json=Json(
        path="/api/ci/lost-tests/{owner}/{repo}",
        answer=lost_json,
        content=LostTestsAnswer,
        name="lostTests",
        summary="What complete runs have less of than the trusted run before",
        topic=openapi.CI,
        description=CACHED,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        etag=True,
        link=lambda run_losses: {"repo": run_losses.repo, "days": run_losses.days},
    ),
)


async def read_flaky_tests(query: Query) -> FlakyTests:
    """Read the flaky tests of a repository."""
    tx, days = query.tx, query[FLAKY_DAYS]
    choice = TestFilter(repository_ids=await commits.visible_repositories(query), since=tx.now - days * DAY)
    flaky_rows = await result_rows.flaky_tests(tx, choice, limit=ROWS + 1)
    states = await states_of_tests(tx, [row["id"] for row in flaky_rows])
    flaky = [
        Flaky(
            test=LinkedTest(row=row),
            cost=row,
            states=[
                state for state in states if state["test_id"] == row["id"] and state["state"] != "healthy"
            ],
        )
        for row in flaky_rows[:ROWS]
    ]
    return FlakyTests(
        repo=query[REPO],
        days=days,
        flaky=flaky,
        more=len(flaky_rows) > ROWS,
        blocked=sum(row["blocked"] for row in flaky_rows),
        lost_seconds=sum(row["lost_ms"] for row in flaky_rows) / 1000,
    )


def flaky_page(flaky: FlakyTests) -> dict[str, Any]:
    """Return the values of the page."""
    return {
        "repo": flaky.repo,
        "days": flaky.days,
        "windows": addresses.windows(flaky.days),
        "flaky": flaky.flaky,
        "more": flaky.more,
        "blocked": flaky.blocked,
        "lost": flaky.lost_seconds,
        "json_url": f"/api/ci/tests/{flaky.repo}?sort=flaky&days={flaky.days}",
    }


FLAKY_VIEW = View(
    read=read_flaky_tests,
    parameters=(REPO, FLAKY_DAYS),
    page=Page(path=f"{REPOSITORY}/flaky", template="flaky.html", values=flaky_page),
)


def _named(rows: Iterable[TestRow]) -> list[LinkedTest]:
    return sorted((LinkedTest(row=row) for row in rows), key=lambda test: (test.file, test.suite, test.name))
