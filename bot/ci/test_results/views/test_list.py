"""GET /{owner}/{repo}/tests and /api/ci/tests/{owner}/{repo}: a repository's tests, page by page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from bot.ci.collect import job_reads
from bot.ci.test_results.store import evaluate_states, list_rows, slow_tests
from bot.ci.test_results.store.list_rows import Choice
from bot.ci.test_results.views import heads, run_counts
from bot.ci.test_results.views.failing import Named
from bot.core.errors import Rejected
from bot.core.json_fields import FULL_NAME
from bot.web import parameters
from bot.web.answers import Answer, Time, fill, send
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render
from bot.web.page_cache import tagged

if TYPE_CHECKING:
    from aiohttp import web

    from bot.ci.test_results.store.list_rows import ListedTest
    from bot.ci.test_results.tables import StateRow
    from bot.ci.test_results.views.run_counts import RunCounts
    from bot.db.transaction import Transaction

ROWS = 100
DAYS = 7
DAY = 86_400_000  # milliseconds
SORTS = ("failures", "flaky", "recent", "slow", "name")
STATES = ("flaky", "broken", "quarantined", "healthy", list_rows.GONE)
LONGEST = 1_000  # characters of a file or suite
SLOWEST = 1_000  # tests that are looked at
ENVIRONMENTS = 100


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
class Page:
    """A page of the list."""

    repo: str  # whose tests: the repository's, or a backend's
    rows: list[Row]
    following: str | None
    choice: Choice
    sort: str
    days: int
    counted_days: int  # of trusted runs


@page
async def tests(request: web.Request) -> web.Response:
    """Show a repository's tests."""
    repo = parameters.repo(request)
    async with request.app[CONTEXT].store.read() as tx:
        found = await read(request, tx)
        environments = await list_rows.env_groups(tx, found.choice.repository_ids, limit=ENVIRONMENTS)
    asked = _asked(request, found)
    return render(
        request,
        "tests.html",
        fresh=parameters.of(request),
        repo=repo,
        found=found,
        asked=asked,
        query=parameters.query,
        sorts=SORTS,
        states=STATES,
        environments=environments,
        windows=parameters.windows(found.days),
        json_url=f"/api/ci/tests/{repo}?{parameters.query(asked)}",
    )


@tagged
async def tests_json(request: web.Request) -> web.Response:
    """Answer with a repository's tests."""
    async with request.app[CONTEXT].store.read() as tx:
        found = await read(request, tx)
    return send(
        TestList(
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
                    skipped=row.ran.counts.skipped,
                    average_ms=row.ran.average_ms,
                    pass_rate=row.ran.pass_rate,
                    states={one["env_group"]: one["state"] for one in row.states},
                )
                for row in found.rows
            ],
            next=found.following,
        )
    )


async def read(request: web.Request, tx: Transaction, *, file: str = "") -> Page:
    """Return the page that the query asks for; with `file`, of that file's tests."""
    days = parameters.whole(request, "days", default=DAYS, most=parameters.MOST_DAYS)
    limit = parameters.limit(request, default=ROWS)
    sort = parameters.choice(request, "sort", SORTS)
    state, words = parameters.choice(request, "state", ["", *STATES]), parameters.words(request)
    if state == list_rows.GONE:
        sort = "name"  # such tests have no failures to be sorted by
    given = {name: parameters.given(request, name) for name in ("file", "suite", "env", "backend", "before")}
    repo, owners = await _whose(request, tx, given["backend"])
    choice = Choice(
        repository_ids=owners,
        since=tx.now - days * DAY,
        words=words,
        file=file or given["file"][:LONGEST],
        suite=given["suite"][:LONGEST],
        state=state,
        env_group=given["env"][:LONGEST],
    )
    found, times, following = await _sorted(request, tx, choice, sort, limit)
    ids = [row["id"] for row in found]
    states = await evaluate_states.states_of_tests(tx, ids)
    counted = await run_counts.count_runs(tx, choice, ids, days=days)
    return Page(
        repo=repo,
        rows=[
            Row(
                test=Named.of(row),
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
    )


async def _sorted(
    request: web.Request, tx: Transaction, choice: Choice, sort: str, limit: int
) -> tuple[list[ListedTest], dict[int, int], str | None]:
    """Return tests, the times of slow ones, and the `before` of what follows."""
    if sort == "slow":
        return await _slow(request, tx, choice, limit)
    if sort == "name":
        found = await list_rows.tests_by_age(
            tx, choice, after=parameters.before_id(request) or 0, limit=limit + 1
        )
        return found[:limit], {}, str(found[limit - 1]["id"]) if len(found) > limit else None
    position = parameters.before(request, [False, False])
    before = (int(position[0]), int(position[1])) if position else None
    found = await list_rows.failing_tests(tx, choice, order=sort, before=before, limit=limit + 1)
    if len(found) <= limit:
        return found, {}, None
    last = found[limit - 1]
    value = {"failures": last["failures"], "flaky": last["flaky"], "recent": last["failed_at"]}[sort]
    return found[:limit], {}, parameters.following([value, last["id"]])


async def _slow(
    request: web.Request, tx: Transaction, choice: Choice, limit: int
) -> tuple[list[ListedTest], dict[int, int], str | None]:
    skipped = parameters.before_id(request) or 0
    slow = await slow_tests.slowest_tests(tx, choice.repository_ids, since=choice.since, limit=SLOWEST)
    known = {
        row["id"]: row for row in await list_rows.chosen_tests(tx, choice, [one.test_id for one in slow])
    }
    chosen = [one for one in slow if one.test_id in known]
    shown = chosen[skipped : skipped + limit]
    times = {one.test_id: one.time_ms for one in shown}
    more = len(chosen) > skipped + limit
    return [known[one.test_id] for one in shown], times, str(skipped + limit) if more else None


async def _whose(request: web.Request, tx: Transaction, backend: str) -> tuple[str, set[int]]:
    """Return whose tests are listed: the repository's in the path, or those of ?backend=."""
    owners = await heads.owners(request, tx)
    if not backend:
        return parameters.repo(request), owners
    theirs = await job_reads.visible(request, tx, backend) if FULL_NAME.fullmatch(backend) else set()
    if not theirs:
        raise Rejected(404, "unknown_backend", f"nothing of {backend[:200]} may be shown here")
    return backend, theirs


def _asked(request: web.Request, found: Page) -> dict[str, object]:
    """Return the query of this page, as links to others of the same choice have it."""
    return {
        "q": found.choice.words,
        "file": found.choice.file,
        "suite": found.choice.suite,
        "state": found.choice.state,
        "env": found.choice.env_group,
        "backend": parameters.given(request, "backend"),
        "days": found.days if found.days != DAYS else "",
        "sort": found.sort if found.sort != SORTS[0] else "",
    }
