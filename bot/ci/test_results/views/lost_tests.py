"""GET /{owner}/{repo}/tests/lost and /api/ci/lost-tests/{owner}/{repo}: what runs have less of than before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.ci.test_results.losses import Kind
from bot.ci.test_results.store import loss_rows, result_rows
from bot.ci.test_results.store.rows import DAY
from bot.ci.test_results.tables import LossRow
from bot.ci.test_results.views import heads
from bot.ci.test_results.views.failing import Named
from bot.ci.test_results.views.heads import CACHED
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill, one_of
from bot.web.asked import Parameter
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.ci.test_results.store.loss_rows import ListedLoss
    from bot.ci.test_results.tables import TestRow
    from bot.db.transaction import Transaction
    from bot.web.asked import Asked

DAYS = declare.days("the window of the runs", default=7)
LIMIT = declare.whole("limit", op.MOST_ROWS, "how many rows at most", default=100)
BEFORE = Parameter("before", parameters.before_id, None, (op.before(op.Number),))
NAMED = 3  # tests that are gone, in a sentence


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
        one_of(Kind),
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
    examples: list[Named]

    @property
    def words(self) -> str:
        """What was lost, with the names of some tests that are gone."""
        names = [one.name for one in self.examples[:NAMED]]
        more = [f"{self.row['gone'] - len(names):,} more"] if self.row["gone"] > len(names) else []
        return f"{words(self.row)}: {', '.join([*names, *more])}" if names else words(self.row)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What runs of a repository lost."""

    repo: str
    days: int
    losses: list[Loss]
    following: str | None


async def read_lost_tests(asked: Asked) -> Found:
    """Read what runs lost."""
    days, limit, skipped = asked[DAYS], asked[LIMIT], asked[BEFORE] or 0
    owners, since = await heads.owners(asked), asked.tx.now - days * DAY
    lost = await loss_rows.newest_losses(asked.tx, owners, since=since, skipped=skipped, limit=limit + 1)
    return Found(
        repo=asked[REPO],
        days=days,
        losses=await with_tests(asked.tx, lost[:limit]),
        following=str(skipped + limit) if len(lost) > limit else None,
    )


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    return {"repo": found.repo, "found": found, "windows": parameters.windows(found.days)}


def answer(found: Found) -> LostTestsAnswer:
    """Return the JSON of what runs lost."""
    lost = [fill(LostTests, one.row, examples=[test.digest for test in one.examples]) for one in found.losses]
    return LostTestsAnswer(days=found.days, lost=lost, next=found.following)


async def with_tests(tx: Transaction, rows: Sequence[ListedLoss]) -> list[Loss]:
    """Return losses with the tests that are gone, as far as these are still known."""
    known: dict[int, TestRow] = await result_rows.tests_by_id(
        tx, {one for row in rows for one in row["examples"]}
    )
    return [
        Loss(row=row, examples=_named(known[one] for one in row["examples"] if one in known)) for row in rows
    ]


def _named(rows: Iterable[TestRow]) -> list[Named]:
    return sorted((Named(row=row) for row in rows), key=lambda one: (one.file, one.suite, one.name))


def words(row: ListedLoss) -> str:
    """Return what was lost in a sentence."""
    if row["kind"] == Kind.GONE:
        return f"{row['gone']:,} {'test is' if row['gone'] == 1 else 'tests are'} gone"
    if row["kind"] == Kind.SKIPPED:
        before = f"{row['skipped_before']:,} of {row['tests_before']:,}"
        return f"skips {row['skipped']:,} of {row['tests']:,} tests, {before} before"
    return f"{row['tests']:,} of {row['tests_before']:,} tests are left"


VIEW = View(
    read=read_lost_tests,
    parameters=(REPO, DAYS, LIMIT, BEFORE),
    page=Page(path=f"{REPOSITORY}/tests/lost", template="lost.html", values=show),
    json=Json(
        path="/api/ci/lost-tests/{owner}/{repo}",
        answer=answer,
        content=LostTestsAnswer,
        name="lostTests",
        summary="What complete runs have less of than the trusted run before",
        topic=op.CI,
        description=CACHED,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        etag=True,
        link=lambda found: {"repo": found.repo, "days": found.days},
    ),
)
