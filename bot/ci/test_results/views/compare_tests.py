"""GET /api/ci/compare/{owner}/{repo}, and what pages say of it: what changed between two commits, test by test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec import Meta

from bot.ci.test_results.comparing import Change
from bot.ci.test_results.parse import identity
from bot.ci.test_results.store import result_rows, rows
from bot.ci.test_results.tables import NamedTestRow
from bot.ci.test_results.views import heads
from bot.ci.test_results.views.failing import Named
from bot.ci.test_results.views.heads import CACHED, TestDigest
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import Answer, fill, matching, one_of
from bot.web.asked import Parameter
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY, Refused
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from aiohttp import web

    from bot.ci.test_results.comparing import Comparison
    from bot.ci.test_results.job_tables import TestJobRow
    from bot.ci.test_results.tables import TestRow
    from bot.db.transaction import Transaction
    from bot.web.asked import Asked

CHANGED = 50  # tests of one kind on a page
TITLES = {
    Change.NEWLY_FAILING: "Newly failing",
    Change.STILL_FAILING: "Still failing",
    Change.FIXED: "Fixed",
    Change.NEW: "New tests",
    Change.GONE: "Gone",
    Change.NEWLY_SKIPPED: "Newly skipped",
}
UNKNOWN_COMMIT = Refused(404, "unknown_commit", "no test of that commit is known")
SHA = Annotated[str, matching(parameters.SHA)]


def _needed_commit(name: str) -> Parameter[str]:
    schema = op.needed(name, SHA, "a commit, or its beginning")
    return Parameter(name, lambda request: parameters.commit(parameters.needed(request, name)), "", (schema,))


def _optional_base(request: web.Request) -> str:
    text = parameters.given(request, "base")
    return parameters.commit(text) if text else ""


BASE = Parameter("base", _optional_base, "", only="page")
NEEDED_BASE, NEEDED_HEAD = _needed_commit("base"), _needed_commit("head")


class ChangedTest(
    RowAnswer,
    row=NamedTestRow,
    only=("change", "family", "test", "file", "suite", "name"),
    frozen=True,
    kw_only=True,
):
    """A test that differs from the base."""

    change: Annotated[str, one_of(Change)]
    family: Annotated[str, Meta(description="the jobs it ran in: workflow and name without shard and runner")]
    test: TestDigest


class ComparedTests(Answer, frozen=True, kw_only=True):
    """What changed between two commits, test by test, where the same jobs ran on both"""

    base: str
    head: str
    families: Annotated[int, Meta(description="of jobs that ran on both")]
    only_base: Annotated[list[str], Meta(description="families that ran on the base only; not compared")]
    only_head: list[str]
    counts: Annotated[dict[str, int], Meta(description="tests by change; all of them")]
    tests: Annotated[list[ChangedTest], Meta(description="at most 1,000 of each change")]


@dataclass(frozen=True, kw_only=True)
class ComparedHeads:
    """A comparison with its tests, and the commits it is of."""

    base: str
    head: str = ""
    result: Comparison
    tests: dict[int, TestRow]

    def listed(self) -> list[tuple[Change, str, list[tuple[str, Named]], int]]:
        """Return for each change its title, the first tests with their families, and how many there are."""
        return [
            (
                change,
                TITLES[change],
                sorted(
                    (
                        (one.family, Named(row=self.tests[one.test_id]))
                        for one in named[:CHANGED]
                        if one.test_id in self.tests
                    ),
                    key=lambda shown: (shown[1].file, shown[1].suite, shown[1].name, shown[0]),
                ),
                self.result.counts[change],
            )
            for change, named in self.result.changed.items()
            if self.result.counts[change]
        ]


class Beside(NamedTuple):
    """What a page says of other commits."""

    compared: ComparedHeads | None  # with the one that ?base= names
    earlier: str | None  # the newest trusted commit on which the same jobs ran before


async def read_beside(asked: Asked, owners: set[int], jobs: list[TestJobRow]) -> Beside:
    """Read what changed since the commit that ?base= names, and the commit before."""
    if not asked.for_page:
        return Beside(None, None)
    compared = None
    if asked[BASE]:
        base = await _whole_sha(asked.tx, owners, asked[BASE])
        jobs_before = await rows.jobs_on(asked.tx, owners, base)
        result, tests = await heads.compared(asked.tx, jobs_before, jobs, most=CHANGED)
        compared = ComparedHeads(base=base, result=result, tests=tests)
    earlier = await result_rows.trusted_before(asked.tx, owners, jobs[0]) if jobs else None
    return Beside(compared, earlier)


async def _whole_sha(tx: Transaction, owners: set[int], sha: str) -> str:
    whole = await result_rows.full_sha(tx, owners, sha)
    if whole is None:
        raise UNKNOWN_COMMIT.because(f"no test of commit {sha[:12]} is known here")
    return whole


async def read_comparison(asked: Asked) -> ComparedHeads:
    """Read what changed between two commits."""
    owners = await heads.owners(asked)
    base, head = [await _whole_sha(asked.tx, owners, asked[one]) for one in (NEEDED_BASE, NEEDED_HEAD)]
    sides = [await rows.jobs_on(asked.tx, owners, sha) for sha in (base, head)]
    result, tests = await heads.compared(asked.tx, *sides)
    return ComparedHeads(base=base, head=head, result=result, tests=tests)


def answer(found: ComparedHeads) -> ComparedTests:
    """Return the JSON of a comparison."""
    result, tests = found.result, found.tests
    changed = [
        fill(
            ChangedTest,
            tests[one.test_id],
            change=change.value,
            family=one.family,
            test=identity.shown_digest(tests[one.test_id]["digest"]),
        )
        for change, named in result.changed.items()
        for one in named
        if one.test_id in tests
    ]
    return ComparedTests(
        base=found.base,
        head=found.head,
        families=result.families,
        only_base=result.only_base,
        only_head=result.only_head,
        counts={change.value: count for change, count in result.counts.items()},
        tests=changed,
    )


VIEW = View(
    read=read_comparison,
    parameters=(REPO, NEEDED_BASE, NEEDED_HEAD),
    json=Json(
        path="/api/ci/compare/{owner}/{repo}",
        answer=answer,
        content=ComparedTests,
        name="compareTests",
        summary="What changed between two commits, test by test",
        topic=op.CI,
        description=CACHED,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY, UNKNOWN_COMMIT),
        etag=True,
    ),
)
