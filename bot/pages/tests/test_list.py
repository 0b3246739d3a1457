"""The list of a repository's tests, page by page, and the tests of one file; pages and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from bot.core.errors import Rejected
from bot.core.json_fields import FULL_NAME
from bot.evidence.tests import result_rows
from bot.evidence.tests.days import Counts, days_of_tests, page_of_test
from bot.evidence.tests.failing import LinkedTest
from bot.evidence.tests.result_rows import TestFilter
from bot.evidence.tests.rows import DAY
from bot.evidence.tests.states import states_of_tests
from bot.pages import job_reads
from bot.pages.tests import commits
from bot.pages.tests.commits import CACHED, visible_repositories
from bot.web import addresses, openapi, parameters
from bot.web.answers import Answer, Time, fill_struct
from bot.web.openapi import NOT_FOUND, UNKNOWN_REPOSITORY, DeclaredRefusal
from bot.web.parameters import REPO, REPOSITORY, Parameter
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.db.transaction import Transaction
    from bot.evidence.tests.result_rows import ListedTest, SuiteCount
    from bot.evidence.tests.tables import StateRow, SummaryRow, TestJobRow
    from bot.web.parameters import Query

SUMS_MOST = 200  # that are read for one list: each has the sums of 4,096 tests on one day
SORTS = ("failures", "flaky", "recent", "slow", "name")
STATES = ("flaky", "broken", "quarantined", "healthy", result_rows.GONE)
LONGEST = 1_000  # characters of a file or suite
SLOWEST = 1_000  # tests that are looked at
ENVIRONMENTS = 100
WINDOW = 7  # days
NO_BACKEND = DeclaredRefusal(404, "unknown_backend", "nothing of that backend may be shown")
WORDS = Parameter(
    "q",
    addresses.words,
    "",
    (openapi.in_query("q", openapi.Text, "only tests with these words in name, suite or file"),),
)
FILE = parameters.text("file", "only tests of this file", most=LONGEST)
SUITE = parameters.text("suite", "only tests of this suite", most=LONGEST)
STATE = parameters.choice("state", ("", *STATES), "only tests in this state anywhere")
ENV = parameters.text("env", "only failures in this group of environments", most=LONGEST)
BACKEND = parameters.another_repository("backend", "the tests of a backend, owner/repo, instead")
DAYS = parameters.days("the window of failures", default=WINDOW)
SORT = parameters.choice(
    "sort",
    SORTS,
    "the most or newest failures first, the slowest, or all by age; `name` and `slow` count no failures",
)
LIMIT = parameters.whole("limit", openapi.MOST_ROWS, "how many rows at most", default=100)
BEFORE = Parameter("before", lambda request: addresses.given(request, "before"), "", (openapi.before(),))
PARAMETERS = (REPO, WORDS, FILE, SUITE, STATE, ENV, BACKEND, DAYS, SORT, LIMIT, BEFORE)
SUMMARIES = 1_000  # newest sums that are looked at for the last one of every suite
PATH = parameters.in_path(
    "path", openapi.Text, "a file of tests", parse=lambda text: text[:LONGEST], default="", only="page"
)
CLASSES = 500  # suites of which a file's page tells the last result


class RunCounts(NamedTuple):
    """The counts of a test in the trusted runs of some days."""

    counts: Counts = Counts()

    @property
    def pass_rate(self) -> float | None:
        """The share of runs that passed; None if the test never ran. Skipped tests have not run."""
        ran = self.counts.runs - self.counts.skips
        return self.counts.passed / ran if ran > 0 else None

    @property
    def average_ms(self) -> int | None:
        """The average time of a run; None if the test never ran."""
        ran = self.counts.runs - self.counts.skips
        return round(self.counts.time_ms / ran) if ran > 0 else None


class Counted(NamedTuple):
    """The counts of a list."""

    days: int  # that were counted, today included
    by_test: Mapping[int, RunCounts]

    def of(self, test_id: int) -> RunCounts:
        """Return the counts of a test."""
        return self.by_test.get(test_id, RunCounts())


class Listed(Struct, frozen=True, kw_only=True):
    """A test with its failures in the window."""

    test: Annotated[str, Meta(description="as in its page's address")]
    file: str
    suite: str
    name: str
    failures: int
    flaky: Annotated[int, Meta(description="times it passed at another attempt only, or failed after a pass")]
    commits: Annotated[int, Meta(description="on which it failed or was flaky")]
    failed_at: Time | None
    time_ms: Annotated[int | None, Meta(description="the longest it took of late; with sort=slow only")]
    runs: Annotated[int, Meta(description="of trusted runs, in the newest `counted_days`; as the next four")]
    passed: int
    skipped: int
    average_ms: Annotated[int | None, Meta(description="of runs that did not skip it; null: none")]
    pass_rate: Annotated[float | None, Meta(description="passed / (runs - skipped); null: it never ran")]
    states: Annotated[dict[str, str], Meta(description="by group of environments, where it is not healthy")]


class TestList(Answer, frozen=True, kw_only=True):
    """A repository's tests"""

    days: int
    counted_days: Annotated[
        int,
        Meta(
            description="of which trusted runs are counted: fewer than `days` where that would be too many sums"
        ),
    ]
    tests: list[Listed]
    next: Annotated[str | None, Meta(description="the `before` of the following page")]


@dataclass(frozen=True, kw_only=True)
class ListedRow:
    """A test of the list."""

    test: LinkedTest
    listed: ListedTest
    time_ms: int | None
    ran: RunCounts
    states: list[StateRow] = field(default_factory=list)  # but for the healthy ones


@dataclass(frozen=True, kw_only=True)
class FileSuite:
    """A suite, and its counts in the newest trusted job or backend's run."""

    row: SuiteCount
    summary: SummaryRow | None
    job: TestJobRow | None


@dataclass(frozen=True, kw_only=True)
class FileTests:
    """The tests of a file."""

    repo: str
    path: str
    suites: list[FileSuite]
    listed: Listing


async def count_runs(tx: Transaction, choice: TestFilter, test_ids: Collection[int], *, days: int) -> Counted:
    """Count the runs of tests in the chosen environments, over fewer days if the tests are spread far apart."""
    pages = len({page_of_test(test_id) for test_id in test_ids})
    counted = max(min(days, SUMS_MOST // max(pages, 1)), 1)
    last = tx.now // DAY
    totals: dict[int, Counts] = {}
    for repository_id in sorted(choice.repository_ids):
        by_test = await days_of_tests(tx, repository_id, test_ids, since=last - counted + 1, until=last)
        for test_id, by_day in by_test.items():
            for by_group in by_day.values():
                for group, counts in by_group.items():
                    if choice.env_group in ("", group):
                        totals[test_id] = totals.get(test_id, Counts()).plus(counts)
    return Counted(counted, {test_id: RunCounts(counts) for test_id, counts in totals.items()})


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A page of the list."""

    in_path: str  # the repository
    of_backend: str  # whose tests these are instead; empty: the repository's
    rows: list[ListedRow]
    following: str | None
    choice: TestFilter
    sort: str
    days: int
    counted_days: int  # of trusted runs
    environments: list[str] = field(default_factory=list)

    @property
    def repo(self) -> str:
        """The repository whose tests these are."""
        return self.of_backend or self.in_path

    def query(self) -> dict[str, object]:
        """Return the query for links to other pages of the same list."""
        return {
            "q": self.choice.words,
            "file": self.choice.file,
            "suite": self.choice.suite,
            "state": self.choice.state,
            "env": self.choice.env_group,
            "backend": self.of_backend,
            "days": self.days if self.days != WINDOW else "",
            "sort": self.sort if self.sort != SORTS[0] else "",
        }


async def read_test_list(query: Query) -> Listing:
    """Read a repository's tests."""
    return await read_list(query)


async def read_list(query: Query, *, file: str = "") -> Listing:
    """Read the tests that the query asks for; with `file`, those of that file."""
    tx, days = query.tx, query[DAYS]
    gone = query[STATE] == result_rows.GONE  # such tests have no failures to be sorted by
    sort = "name" if gone else query[SORT]
    choice = TestFilter(
        repository_ids=await _owners(query),
        since=tx.now - days * DAY,
        words=query[WORDS],
        file=file or query[FILE],
        suite=query[SUITE],
        state=query[STATE],
        env_group=query[ENV],
    )
    tests, times, following = await _sorted(query, choice, sort)
    ids = [row["id"] for row in tests]
    states = await states_of_tests(tx, ids)
    counted = await count_runs(tx, choice, ids, days=days)
    environments = []
    if query.for_page and not file:
        environments = await result_rows.env_groups(tx, choice.repository_ids, limit=ENVIRONMENTS)
    return Listing(
        in_path=query[REPO],
        of_backend=query[BACKEND],
        rows=[
            ListedRow(
                test=LinkedTest(row=row),
                listed=row,
                time_ms=times.get(row["id"]),
                ran=counted.of(row["id"]),
                states=[
                    state for state in states if state["test_id"] == row["id"] and state["state"] != "healthy"
                ],
            )
            for row in tests
        ],
        following=following,
        choice=choice,
        sort=sort,
        days=days,
        counted_days=counted.days,
        environments=environments,
    )


def list_page(listing: Listing) -> dict[str, Any]:
    """Return the values of the page."""
    return {
        "repo": listing.in_path,
        "listing": listing,
        "asked": listing.query(),
        "query": addresses.query,
        "sorts": SORTS,
        "states": STATES,
        "environments": listing.environments,
        "windows": addresses.windows(listing.days),
    }


def list_json(listing: Listing) -> TestList:
    """Return the JSON of the list."""
    return TestList(
        days=listing.days,
        counted_days=listing.counted_days,
        tests=[
            fill_struct(
                Listed,
                row.listed,
                test=row.test.digest,
                time_ms=row.time_ms,
                runs=row.ran.counts.runs,
                passed=row.ran.counts.passed,
                skipped=row.ran.counts.skips,
                average_ms=row.ran.average_ms,
                pass_rate=row.ran.pass_rate,
                states={state["env_group"]: state["state"] for state in row.states},
            )
            for row in listing.rows
        ],
        next=listing.following,
    )


LIST_VIEW = View(
    read=read_test_list,
    parameters=PARAMETERS,
    page=Page(path=f"{REPOSITORY}/tests", template="tests.html", values=list_page),
    json=Json(
        path="/api/ci/tests/{owner}/{repo}",
        answer=list_json,
        content=TestList,
        name="tests",
        summary="A repository's tests",
        topic=openapi.CI,
        description=CACHED,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY, NO_BACKEND),
        etag=True,
        link=lambda listing: {"repo": listing.in_path, **listing.query()},
    ),
)


async def read_test_file(query: Query) -> FileTests:
    """Read the tests of a file."""
    repo, path = query[REPO], query[PATH]
    suites = await _suites(query.tx, await commits.visible_repositories(query), path)
    if not suites:
        raise Rejected(404, "unknown_file", f"no test of that file is known in {repo}")
    return FileTests(repo=repo, path=path, suites=suites, listed=await read_list(query, file=path))


def file_page(file_tests: FileTests) -> dict[str, Any]:
    """Return the values of the page."""
    repo, path = file_tests.repo, file_tests.path
    return {
        "repo": repo,
        "path": path,
        "suites": file_tests.suites,
        "listing": file_tests.listed,
        "every": f"/{repo}/tests?{addresses.query({'file': path, 'sort': 'name'})}",
        "json_url": f"/api/ci/tests/{repo}?{addresses.query({'file': path})}",
    }


FILE_VIEW = View(
    read=read_test_file,
    parameters=(*PARAMETERS, PATH),
    page=Page(path=f"{REPOSITORY}/tests/file/{{path:.+}}", template="test_file.html", values=file_page),
)


async def _sorted(
    query: Query, choice: TestFilter, sort: str
) -> tuple[list[ListedTest], dict[int, int], str | None]:
    """Return tests in order, the times of slow ones, and the `before` of the next page."""
    tx, limit = query.tx, query[LIMIT]
    if sort == "slow":
        return await _slow(query, choice, limit)
    if sort == "name":
        after = addresses.before_id(query.request) or 0
        tests = await result_rows.tests_by_age(tx, choice, after=after, limit=limit + 1)
        return tests[:limit], {}, str(tests[limit - 1]["id"]) if len(tests) > limit else None
    position = addresses.before(query.request, [False, False])
    before = (int(position[0]), int(position[1])) if position else None
    tests = await result_rows.failing_tests(tx, choice, order=sort, before=before, limit=limit + 1)
    if len(tests) <= limit:
        return tests, {}, None
    last = tests[limit - 1]
    value = {"failures": last["failures"], "flaky": last["flaky"], "recent": last["failed_at"]}[sort]
    return tests[:limit], {}, addresses.following([value, last["id"]])


async def _slow(
    query: Query, choice: TestFilter, limit: int
) -> tuple[list[ListedTest], dict[int, int], str | None]:
    skipped = addresses.before_id(query.request) or 0
    slow = await result_rows.slowest_tests(query.tx, choice.repository_ids, since=choice.since, limit=SLOWEST)
    chosen_tests = await result_rows.filtered_tests(query.tx, choice, [test.test_id for test in slow])
    known = {row["id"]: row for row in chosen_tests}
    chosen = [test for test in slow if test.test_id in known]
    shown = chosen[skipped : skipped + limit]
    times = {test.test_id: test.time_ms for test in shown}
    more = len(chosen) > skipped + limit
    return [known[test.test_id] for test in shown], times, str(skipped + limit) if more else None


async def _owners(query: Query) -> set[int]:
    """Return the repositories whose tests are listed: those in the path, or in ?backend=."""
    owners, backend = await visible_repositories(query), query[BACKEND]
    if not backend:
        return owners
    theirs = await job_reads.visible_ids_of(query, backend) if FULL_NAME.fullmatch(backend) else set()
    if not theirs:
        raise NO_BACKEND.because(f"nothing of {backend[:200]} may be shown here")
    return theirs


async def _suites(tx: Transaction, owners: set[int], path: str) -> list[FileSuite]:
    rows = await result_rows.suites_of_file(tx, owners, path)
    ids = [row["id"] for row in rows[:CLASSES]]
    newest: dict[int, SummaryRow] = {}
    for summary in await result_rows.newest_summaries(tx, ids, limit=SUMMARIES) if ids else ():
        newest.setdefault(summary["class_id"], summary)
    jobs = await result_rows.jobs_by_generation(tx, {summary["generation"] for summary in newest.values()})
    shown = {key: summary for key, summary in newest.items() if summary["generation"] in jobs}
    return [
        FileSuite(
            row=row,
            summary=shown.get(row["id"]),
            job=jobs[shown[row["id"]]["generation"]] if row["id"] in shown else None,
        )
        for row in rows
    ]
