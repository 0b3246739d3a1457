"""GET /{owner}/{repo}/tests and its JSON: a repository's tests, page by page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.ci.collect import job_reads
from bot.ci.test_results.store import evaluate_states, list_rows, slow_tests
from bot.ci.test_results.store.list_rows import Choice
from bot.ci.test_results.store.rows import DAY
from bot.ci.test_results.views import heads, run_counts
from bot.ci.test_results.views.failing import Named
from bot.ci.test_results.views.heads import CACHED
from bot.core.json_fields import FULL_NAME
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import Answer, Time, fill
from bot.web.asked import Parameter
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY, Refused
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from bot.ci.test_results.store.list_rows import ListedTest
    from bot.ci.test_results.tables import StateRow
    from bot.ci.test_results.views.run_counts import RunCounts
    from bot.web.asked import Asked

SORTS = ("failures", "flaky", "recent", "slow", "name")
STATES = ("flaky", "broken", "quarantined", "healthy", list_rows.GONE)
LONGEST = 1_000  # characters of a file or suite
SLOWEST = 1_000  # tests that are looked at
ENVIRONMENTS = 100
WINDOW = 7  # days
NO_BACKEND = Refused(404, "unknown_backend", "nothing of that backend may be shown")
WORDS = Parameter(
    "q",
    parameters.words,
    "",
    (op.in_query("q", op.Text, "only tests with these words in name, suite or file"),),
)
FILE = declare.text("file", "only tests of this file", most=LONGEST)
SUITE = declare.text("suite", "only tests of this suite", most=LONGEST)
STATE = declare.choice("state", ("", *STATES), "only tests in this state anywhere")
ENV = declare.text("env", "only failures in this group of environments", most=LONGEST)
BACKEND = declare.another_repository("backend", "the tests of a backend, owner/repo, instead")
DAYS = declare.days("the window of failures", default=WINDOW)
SORT = declare.choice(
    "sort",
    SORTS,
    "the most or newest failures first, the slowest, or all by age; `name` and `slow` count no failures",
)
LIMIT = declare.whole("limit", op.MOST_ROWS, "how many rows at most", default=100)
BEFORE = Parameter("before", lambda request: parameters.given(request, "before"), "", (op.before(),))
PARAMETERS = (REPO, WORDS, FILE, SUITE, STATE, ENV, BACKEND, DAYS, SORT, LIMIT, BEFORE)


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
class Row:
    """A test of the list."""

    test: Named
    listed: ListedTest
    time_ms: int | None
    ran: RunCounts
    states: list[StateRow] = field(default_factory=list)  # but for the healthy ones


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A page of the list."""

    in_path: str  # the repository
    of_backend: str  # whose tests these are instead; empty: the repository's
    rows: list[Row]
    following: str | None
    choice: Choice
    sort: str
    days: int
    counted_days: int  # of trusted runs
    environments: list[str] = field(default_factory=list)

    @property
    def repo(self) -> str:
        """Whose tests these are."""
        return self.of_backend or self.in_path

    def query(self) -> dict[str, object]:
        """Return the query of this page, as links to others of the same choice have it."""
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


async def read_test_list(asked: Asked) -> Listing:
    """Read a repository's tests."""
    return await read_list(asked)


async def read_list(asked: Asked, *, file: str = "") -> Listing:
    """Return the tests that the query asks for; with `file`, those of that file."""
    tx, days = asked.tx, asked[DAYS]
    gone = asked[STATE] == list_rows.GONE  # such tests have no failures to be sorted by
    sort = "name" if gone else asked[SORT]
    choice = Choice(
        repository_ids=await _owners(asked),
        since=tx.now - days * DAY,
        words=asked[WORDS],
        file=file or asked[FILE],
        suite=asked[SUITE],
        state=asked[STATE],
        env_group=asked[ENV],
    )
    found, times, following = await _sorted(asked, choice, sort)
    ids = [row["id"] for row in found]
    states = await evaluate_states.states_of_tests(tx, ids)
    counted = await run_counts.count_runs(tx, choice, ids, days=days)
    environments = []
    if asked.for_page and not file:
        environments = await list_rows.env_groups(tx, choice.repository_ids, limit=ENVIRONMENTS)
    return Listing(
        in_path=asked[REPO],
        of_backend=asked[BACKEND],
        rows=[
            Row(
                test=Named(row=row),
                listed=row,
                time_ms=times.get(row["id"]),
                ran=counted.of(row["id"]),
                states=[one for one in states if one["test_id"] == row["id"] and one["state"] != "healthy"],
            )
            for row in found
        ],
        following=following,
        choice=choice,
        sort=sort,
        days=days,
        counted_days=counted.days,
        environments=environments,
    )


async def _sorted(
    asked: Asked, choice: Choice, sort: str
) -> tuple[list[ListedTest], dict[int, int], str | None]:
    """Return tests, the times of slow ones, and the `before` of what follows."""
    tx, limit = asked.tx, asked[LIMIT]
    if sort == "slow":
        return await _slow(asked, choice, limit)
    if sort == "name":
        after = parameters.before_id(asked.request) or 0
        found = await list_rows.tests_by_age(tx, choice, after=after, limit=limit + 1)
        return found[:limit], {}, str(found[limit - 1]["id"]) if len(found) > limit else None
    position = parameters.before(asked.request, [False, False])
    before = (int(position[0]), int(position[1])) if position else None
    found = await list_rows.failing_tests(tx, choice, order=sort, before=before, limit=limit + 1)
    if len(found) <= limit:
        return found, {}, None
    last = found[limit - 1]
    value = {"failures": last["failures"], "flaky": last["flaky"], "recent": last["failed_at"]}[sort]
    return found[:limit], {}, parameters.following([value, last["id"]])


async def _slow(
    asked: Asked, choice: Choice, limit: int
) -> tuple[list[ListedTest], dict[int, int], str | None]:
    skipped = parameters.before_id(asked.request) or 0
    slow = await slow_tests.slowest_tests(asked.tx, choice.repository_ids, since=choice.since, limit=SLOWEST)
    chosen_tests = await list_rows.chosen_tests(asked.tx, choice, [one.test_id for one in slow])
    known = {row["id"]: row for row in chosen_tests}
    chosen = [one for one in slow if one.test_id in known]
    shown = chosen[skipped : skipped + limit]
    times = {one.test_id: one.time_ms for one in shown}
    more = len(chosen) > skipped + limit
    return [known[one.test_id] for one in shown], times, str(skipped + limit) if more else None


async def _owners(asked: Asked) -> set[int]:
    """Return whose tests are listed: the repository's in the path, or those of ?backend=."""
    owners, backend = await heads.owners(asked), asked[BACKEND]
    if not backend:
        return owners
    theirs = await job_reads.visible_to(asked, backend) if FULL_NAME.fullmatch(backend) else set()
    if not theirs:
        raise NO_BACKEND.because(f"nothing of {backend[:200]} may be shown here")
    return theirs


def show(found: Listing) -> dict[str, Any]:
    """Return what the page shows."""
    return {
        "repo": found.in_path,
        "found": found,
        "asked": found.query(),
        "query": parameters.query,
        "sorts": SORTS,
        "states": STATES,
        "environments": found.environments,
        "windows": parameters.windows(found.days),
    }


def answer(found: Listing) -> TestList:
    """Return the JSON of the list."""
    return TestList(
        days=found.days,
        counted_days=found.counted_days,
        tests=[
            fill(
                Listed,
                row.listed,
                test=row.test.digest,
                time_ms=row.time_ms,
                runs=row.ran.counts.runs,
                passed=row.ran.counts.passed,
                skipped=row.ran.counts.skips,
                average_ms=row.ran.average_ms,
                pass_rate=row.ran.pass_rate,
                states={one["env_group"]: one["state"] for one in row.states},
            )
            for row in found.rows
        ],
        next=found.following,
    )


VIEW = View(
    read=read_test_list,
    parameters=PARAMETERS,
    page=Page(path=f"{REPOSITORY}/tests", template="tests.html", values=show),
    json=Json(
        path="/api/ci/tests/{owner}/{repo}",
        answer=answer,
        content=TestList,
        name="tests",
        summary="A repository's tests",
        topic=op.CI,
        description=CACHED,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY, NO_BACKEND),
        etag=True,
        link=lambda found: {"repo": found.in_path, **found.query()},
    ),
)
