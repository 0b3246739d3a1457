"""GET /{owner}/{repo}/tests/lost and /api/ci/lost-tests/{owner}/{repo}: what runs have less of than before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from bot.ci.test_results.losses import Kind
from bot.ci.test_results.store import loss_rows, result_rows
from bot.ci.test_results.views import heads
from bot.ci.test_results.views.failing import Named
from bot.web import parameters
from bot.web.answers import Answer, Time, one_of, send, time
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render
from bot.web.page_cache import tagged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aiohttp import web

    from bot.ci.test_results.store.loss_rows import ListedLoss
    from bot.ci.test_results.tables import TestRow
    from bot.db.transaction import Transaction

ROWS = 100
DAYS = 7
NAMED = 3  # tests that are gone, in a sentence
DAY = 86_400_000  # milliseconds


class LostTests(Struct, frozen=True, kw_only=True):
    """What a suite, or all jobs of a family, lost in a run."""

    kind: Annotated[
        str,
        one_of(Kind),
        Meta(
            description="lost: a fifth of the tests; skipped: the share rose by a fifth; gone: not there any more"
        ),
    ]
    run_id: int
    sha: Annotated[
        str, Meta(description="of the commit that was tested: upstream's where a backend tested one")
    ]
    base: Annotated[str, Meta(description="the commit of the trusted run before")]
    jobs: Annotated[str, Meta(description="workflow and name, without shard and runner")]
    file: Annotated[str, Meta(description="empty, as `suite`: all tests of these jobs")]
    suite: str
    tests_before: int
    tests: int
    skipped_before: int
    skipped: int
    gone: Annotated[int, Meta(description="tests; with kind=gone only")]
    examples: Annotated[list[str], Meta(description="some of these tests, as in their pages' addresses")]
    at: Time


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
class _Found:
    days: int
    losses: list[Loss]
    following: str | None


@page
async def lost(request: web.Request) -> web.Response:
    """Show what runs lost."""
    found, repo = await _find(request), parameters.repo(request)
    return render(
        request,
        "lost.html",
        fresh=parameters.of(request),
        repo=repo,
        found=found,
        windows=parameters.windows(found.days),
        json_url=f"/api/ci/lost-tests/{repo}?days={found.days}",
    )


@tagged
async def lost_json(request: web.Request) -> web.Response:
    """Answer with what runs lost."""
    found = await _find(request)
    answer = LostTestsAnswer(days=found.days, lost=[_of(one) for one in found.losses], next=found.following)
    return send(answer)


async def _find(request: web.Request) -> _Found:
    days = parameters.whole(request, "days", default=DAYS, most=parameters.MOST_DAYS)
    limit, skipped = parameters.limit(request, default=ROWS), parameters.before_id(request) or 0
    async with request.app[CONTEXT].store.read() as tx:
        owners = await heads.owners(request, tx)
        rows = await loss_rows.newest_losses(
            tx, owners, since=tx.now - days * DAY, skipped=skipped, limit=limit + 1
        )
        losses = await with_tests(tx, rows[:limit])
    return _Found(days=days, losses=losses, following=str(skipped + limit) if len(rows) > limit else None)


async def with_tests(tx: Transaction, rows: Sequence[ListedLoss]) -> list[Loss]:
    """Return losses with the tests that are gone, as far as these are still known."""
    known: dict[int, TestRow] = await result_rows.tests_by_id(
        tx, {one for row in rows for one in row["examples"]}
    )
    return [
        Loss(row=row, examples=_named(known[one] for one in row["examples"] if one in known)) for row in rows
    ]


def _named(rows: Iterable[TestRow]) -> list[Named]:
    return sorted((Named.of(row) for row in rows), key=lambda one: (one.file, one.suite, one.name))


def _of(one: Loss) -> LostTests:
    row = one.row
    return LostTests(
        kind=row["kind"],
        run_id=row["run_id"],
        sha=row["head_sha"],
        base=row["base_sha"],
        jobs=row["family"],
        file=row["file"],
        suite=row["suite"],
        tests_before=row["tests_before"],
        tests=row["tests"],
        skipped_before=row["skipped_before"],
        skipped=row["skipped"],
        gone=row["gone"],
        examples=[test.digest for test in one.examples],
        at=time(row["at"]) or "",
    )


def words(row: ListedLoss) -> str:
    """Return what was lost in a sentence."""
    if row["kind"] == Kind.GONE:
        return f"{row['gone']:,} {'test is' if row['gone'] == 1 else 'tests are'} gone"
    if row["kind"] == Kind.SKIPPED:
        before = f"{row['skipped_before']:,} of {row['tests_before']:,}"
        return f"skips {row['skipped']:,} of {row['tests']:,} tests, {before} before"
    return f"{row['tests']:,} of {row['tests_before']:,} tests are left"
