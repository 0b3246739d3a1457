"""GET /{owner}/{repo}/test/{id} and /api/ci/tests/{owner}/{repo}/{id}: one test, everywhere it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.ci.test_results.parse import identity
from bot.ci.test_results.store import count_days, evaluate_states, result_rows
from bot.ci.test_results.views import heads, history
from bot.ci.test_results.views.failing import Named, outcome
from bot.core.errors import Rejected
from bot.web import access, blocks, parameters
from bot.web.answers import Answer, Time, send, time
from bot.web.app_keys import CONTEXT
from bot.web.blocks import BackendsSubject
from bot.web.html import page, render
from bot.web.page_cache import tagged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

    from bot.ci.test_results.store.result_rows import FailureOfTest
    from bot.ci.test_results.tables import StateRow, TestRow
    from bot.ci.test_results.views.history import Line, Strip
    from bot.db.transaction import Transaction
    from bot.web.blocks import JobLine
    from bot.web.charts import Chart

DAY = 86_400_000  # milliseconds
FAILURES = 200
MOST_SAME = 20  # tests that are the same on other devices, in all repositories
STRIP = 30  # days
LOGS = 50  # failures whose logs are linked
GROUPS = 10  # of failures that say the same, on the page


class TestIdentity(Struct, frozen=True, kw_only=True):
    """A test."""

    test: Annotated[str, Meta(description="the first 16 digits of its digest, as in its page's address")]
    repo: str
    file: str
    suite: str
    name: str
    first_at: Time
    last_at: Annotated[Time, Meta(description="the day on which it was last seen")]


class TestStateAnswer(Struct, frozen=True, kw_only=True):
    """What a test is held to be in a group of environments."""

    env_group: str
    state: str
    since: Time
    issue: str | None
    by: str


class TestResult(Struct, frozen=True, kw_only=True):
    """What one job said of a test."""

    outcome: str
    attempts: int
    time_ms: int | None
    sha: Annotated[
        str, Meta(description="of the commit that was tested: upstream's where a backend tested one")
    ]
    job_id: int | None
    at: Time


class SlowerTest(Struct, frozen=True, kw_only=True):
    """The median time of twenty passes of trusted runs: the newest, and those before."""

    before_ms: int
    now_ms: int


class TestLine(Struct, frozen=True, kw_only=True):
    """The newest results of a test in one group of environments."""

    backend: Annotated[str | None, Meta(description="null: the repository's own CI")]
    env_group: str
    status: str
    slower: Annotated[SlowerTest | None, Meta(description="null: it is not")]
    results: list[TestResult]


class TestFailure(Struct, frozen=True, kw_only=True):
    """A failure of a test."""

    outcome: str
    attempts: int
    failed_attempts: int
    verdict: str | None
    message: str
    source_file: Annotated[str | None, Meta(description="where it failed, as its report names the file")]
    line: int | None
    log: Annotated[
        str | None, Meta(description="the line of the job's log that says why it failed, on this bot")
    ]
    sha: str
    run_id: int | None
    job_id: int | None
    pr: int | None
    at: Time
    properties: Annotated[
        dict[str, str], Meta(description="of the failed attempt, as its run report has them")
    ]
    flags: Annotated[
        dict[str, str], Meta(description="environment variables that the job's run report names")
    ]
    report_properties: Annotated[dict[str, str], Meta(description="of the job's run report")]


class TestAnswer(Answer, frozen=True, kw_only=True):
    """One test, everywhere it runs"""

    test: TestIdentity
    states: list[TestStateAnswer]
    lines: list[TestLine]
    failures: list[TestFailure]


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What is known of a test."""

    row: TestRow
    states: list[StateRow]
    lines: list[Line]
    failures: list[FailureOfTest]
    strips: list[Strip]
    time: Chart
    days: int
    log_lines: Mapping[tuple[int, int, str], JobLine]  # by run, attempt and name of the job


@page
async def test(request: web.Request) -> web.Response:
    """Show one test."""
    found, repo = await _find(request), parameters.repo(request)
    return render(
        request,
        "test.html",
        fresh=parameters.of(request),
        repo=repo,
        test=Named.of(found.row),
        row=found.row,
        states=found.states,
        lines=sorted(found.lines, key=lambda line: line.repo.casefold() != repo.casefold()),
        strips=found.strips,
        time=found.time,
        failures=found.failures,
        alike=history.alike(found.failures)[:GROUPS],
        outcome_of=lambda one: outcome(one["outcome"], flaky=one["flaky"]),
        line_of=lambda one: found.log_lines.get((one["run_id"], one["run_attempt"], one["job_name"])),
        form_key=request.get(access.FORM_KEY),
        days=found.days,
        windows=parameters.windows(found.days),
        json_url=f"/api/ci/tests/{repo}/{identity.shown_digest(found.row['digest'])}?days={found.days}",
    )


@tagged
async def test_json(request: web.Request) -> web.Response:
    """Answer with one test."""
    found = await _find(request)
    row = found.row
    return send(
        TestAnswer(
            test=TestIdentity(
                test=identity.shown_digest(row["digest"]),
                repo=parameters.repo(request),
                file=row["file"],
                suite=row["suite"],
                name=row["name"],
                first_at=_time(row["first_at"]),
                last_at=_time(row["last_at"]),
            ),
            states=[
                TestStateAnswer(
                    env_group=one["env_group"],
                    state=one["state"],
                    since=_time(one["since"]),
                    issue=one["issue"],
                    by=one["by"],
                )
                for one in found.states
            ],
            lines=[_line(line) for line in found.lines],
            failures=[_failure(one, found) for one in found.failures],
        )
    )


async def _log_lines(
    request: web.Request, tx: Transaction, failures: Sequence[FailureOfTest]
) -> dict[tuple[int, int, str], JobLine]:
    """Return the lines of logs that say why the jobs failed in which a test did, as far as these may be read."""
    runs = {(str(one["run_id"]), one["run_attempt"]) for one in failures[:LOGS] if one["job_id"] > 0}
    repo = parameters.repo(request).casefold()
    subject = BackendsSubject(runs={repo: frozenset(runs)} if runs else {}, url="")
    found = await blocks.job_lines(request.app[CONTEXT].features, tx, subject)
    return {(int(one.run_id), one.run_attempt, one.job): one for one in found.get(repo, ()) if one.url}


async def _find(request: web.Request) -> _Found:
    days = parameters.days(request)
    async with request.app[CONTEXT].store.read() as tx:
        owners = await heads.owners(request, tx)
        row = await result_rows.test_by_digest(tx, owners, request.match_info["digest"])
        if row is None:
            raise Rejected(404, "unknown_test", f"no test of that id is known in {parameters.repo(request)}")
        same = await result_rows.same_tests(tx, [row["canonical"]], limit=MOST_SAME)
        others = {one["repository_id"] for one in same if one["repository_id"] not in owners}
        shown = others if access.reads_private(request) else await result_rows.public_repositories(tx, others)
        tests = [
            row,
            *(one for one in same if one["id"] != row["id"] and one["repository_id"] in shown | owners),
        ]
        last = tx.now // DAY
        known = await count_days.days_of_tests(
            tx, row["repository_id"], [row["id"]], since=last - STRIP + 1, until=last
        )
        by_day = known.get(row["id"], {})
        failures = await result_rows.failures_of(tx, [row["id"]], since=tx.now - days * DAY, limit=FAILURES)
        return _Found(
            row=row,
            strips=history.strips(by_day, last=last, days=STRIP),
            time=history.time_chart(by_day, last=last, days=STRIP),
            states=await evaluate_states.states_of_tests(tx, [row["id"]]),
            lines=await history.lines(tx, tests),
            failures=failures,
            log_lines=await _log_lines(request, tx, failures),
            days=days,
        )


def _line(line: Line) -> TestLine:
    return TestLine(
        backend=line.repo if line.backend else None,
        env_group=line.env_group,
        status=line.word,
        slower=SlowerTest(**line.slower._asdict()) if line.slower else None,
        results=[
            TestResult(
                outcome=one.word,
                attempts=one.attempts,
                time_ms=one.time_ms,
                sha=one.job["upstream_sha"] or one.job["head_sha"],
                job_id=_github(one.job["job_id"]),
                at=_time(one.job["at"]),
            )
            for one in line.results
        ],
    )


def _failure(one: FailureOfTest, found: _Found) -> TestFailure:
    log = found.log_lines.get((one["run_id"], one["run_attempt"], one["job_name"]))
    return TestFailure(
        outcome=outcome(one["outcome"], flaky=one["flaky"]),
        attempts=one["attempts"],
        failed_attempts=one["failed_attempts"],
        verdict=one["verdict"],
        message=one["message"],
        source_file=one["source_file"],
        line=one["line"],
        log=log.url if log else None,
        sha=one["head_sha"],
        run_id=_github(one["run_id"]),
        job_id=_github(one["job_id"]),
        pr=one["pr_number"],
        at=_time(one["at"]),
        properties=one["properties"] or {},
        flags=one["flags"] or {},
        report_properties=one["report_properties"] or {},
    )


def _github(number: int) -> int | None:
    """Return one of GitHub's ids; ours, for what GitHub does not know, are below 0."""
    return number if number > 0 else None


def _time(at: Any) -> str:
    return time(at) or ""
