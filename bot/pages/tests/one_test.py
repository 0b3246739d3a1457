"""One test, everywhere it runs: its results, failures and state; page and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from bot.evidence.logs import failure_lines
from bot.evidence.tests import result_rows
from bot.evidence.tests.days import days_of_tests
from bot.evidence.tests.failing import LinkedTest, describe_outcome
from bot.evidence.tests.parse import texts
from bot.evidence.tests.rows import DAY, tested_commit
from bot.evidence.tests.states import states_of_tests
from bot.evidence.tests.tables import FailureRow, StateRow
from bot.pages.tests import commits, history
from bot.pages.tests.commits import CACHED
from bot.web import access, addresses, openapi, parameters
from bot.web.answers import Answer, RowAnswer, Time, fill_struct, matching
from bot.web.blocks import BackendsSubject
from bot.web.openapi import NOT_FOUND, UNKNOWN_REPOSITORY, DeclaredRefusal
from bot.web.parameters import REPO, REPOSITORY
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.evidence.tests.result_rows import FailureOfTest
    from bot.evidence.tests.tables import TestRow
    from bot.pages.tests.history import EnvironmentLine, Strip
    from bot.web.blocks import JobLine
    from bot.web.charts import Chart
    from bot.web.parameters import Query

IN_PATH = "{digest:[0-9a-f]{16}}"
DIGEST = parameters.in_path(
    "digest", Annotated[str, matching("[0-9a-f]{16}")], "`test` of another answer", parse=str, default=""
)
DAYS = parameters.days("the window of its failures")
NO_TEST = DeclaredRefusal(404, "unknown_test", "no test of that id is known there")
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


class TestStateAnswer(
    RowAnswer, row=StateRow, only=("env_group", "state", "since", "issue", "by"), frozen=True, kw_only=True
):
    """What a test is held to be in a group of environments."""


class TestResult(
    RowAnswer,
    row=FailureRow,
    only=("outcome", "attempts", "time_ms", "sha", "job_id", "at"),
    frozen=True,
    kw_only=True,
):
    """What one job said of a test."""

    outcome: str
    sha: Annotated[
        str, Meta(description="of the commit that was tested: upstream's where a backend tested one")
    ]
    job_id: int | None


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


class TestFailure(
    RowAnswer,
    row=FailureRow,
    only=(
        "outcome", "attempts", "failed_attempts", "verdict", "message", "source_file", "line", "log", "sha", "run_id",
        "job_id", "pr", "at", "properties", "flags", "report_properties",
    ),
    frozen=True,
    kw_only=True,
):  # fmt: skip
    """A failure of a test."""

    outcome: str
    source_file: Annotated[str | None, Meta(description="where it failed, as its report names the file")]
    log: Annotated[
        str | None, Meta(description="the line of the job's log that says why it failed, on this bot")
    ]
    sha: str
    run_id: int | None
    job_id: int | None
    pr: int | None
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
class KnownTest:
    """What is known of a test."""

    repo: str
    row: TestRow
    states: list[StateRow]
    lines: list[EnvironmentLine]
    failures: list[FailureOfTest]
    strips: list[Strip]
    time: Chart
    days: int
    log_lines: Mapping[tuple[int, int, str], JobLine]  # by run, attempt and name of the job
    form_key: str | None

    def log_line(self, failure: FailureOfTest) -> JobLine | None:
        """Return the log line that explains a failed job."""
        return self.log_lines.get((failure["run_id"], failure["run_attempt"], failure["job_name"]))


async def read_test(query: Query) -> KnownTest:
    """Read what is known of a test."""
    tx, days = query.tx, query[DAYS]
    owners = await commits.visible_repositories(query)
    row = await result_rows.test_by_digest(tx, owners, query[DIGEST])
    if row is None:
        raise NO_TEST.because(f"no test of that id is known in {query[REPO]}")
    last = tx.now // DAY
    known = await days_of_tests(tx, row["repository_id"], [row["id"]], since=last - STRIP + 1, until=last)
    by_day = known.get(row["id"], {})
    failures = await result_rows.failures_of(tx, [row["id"]], since=tx.now - days * DAY, limit=FAILURES)
    return KnownTest(
        repo=query[REPO],
        row=row,
        strips=history.strips(by_day, last=last, days=STRIP),
        time=history.time_chart(
            by_day, last=last, days=STRIP, repo=query[REPO] if query.settings.is_upstream(query[REPO]) else ""
        ),
        states=await states_of_tests(tx, [row["id"]]),
        lines=await history.environment_lines(tx, await _same_tests(query, row, owners)),
        failures=failures,
        log_lines=await _log_lines(query, failures),
        days=days,
        form_key=query.request.get(access.FORM_KEY),
    )


def test_page(test: KnownTest) -> dict[str, Any]:
    """Return the values of the page."""
    return {
        "repo": test.repo,
        "test": LinkedTest(row=test.row),
        "row": test.row,
        "states": test.states,
        "lines": sorted(test.lines, key=lambda line: line.repo.casefold() != test.repo.casefold()),
        "strips": test.strips,
        "time": test.time,
        "failures": test.failures,
        "alike": history.same_failures(test.failures)[:GROUPS],
        "outcome_of": lambda failure: describe_outcome(failure["outcome"], flaky=failure["flaky"]),
        "line_of": test.log_line,
        "form_key": test.form_key,
        "days": test.days,
        "windows": addresses.windows(test.days),
    }


def test_json(test: KnownTest) -> TestAnswer:
    """Return the JSON of a test."""
    digest = texts.shown_digest(test.row["digest"])
    return TestAnswer(
        test=fill_struct(TestIdentity, test.row, test=digest, repo=test.repo),
        states=[fill_struct(TestStateAnswer, state) for state in test.states],
        lines=[_line(line) for line in test.lines],
        failures=[_failure(failure, test) for failure in test.failures],
    )


TEST_VIEW = View(
    read=read_test,
    parameters=(REPO, DIGEST, DAYS),
    page=Page(path=f"{REPOSITORY}/test/{IN_PATH}", template="test.html", values=test_page),
    json=Json(
        path=f"/api/ci/tests/{{owner}}/{{repo}}/{IN_PATH}",
        answer=test_json,
        content=TestAnswer,
        name="test",
        summary="One test, everywhere it runs",
        topic=openapi.CI,
        description=CACHED,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY, NO_TEST),
        etag=True,
        link=lambda test: {
            "repo": test.repo, "digest": texts.shown_digest(test.row["digest"]), "days": test.days,
        },
    ),
)  # fmt: skip


async def _same_tests(query: Query, row: TestRow, owners: set[int]) -> list[TestRow]:
    """Return a test, and the same test on other devices as far as it may be shown."""
    same = await result_rows.same_tests(query.tx, [row["canonical"]], limit=MOST_SAME)
    shown = {test["repository_id"] for test in same if test["repository_id"] not in owners}
    if not access.reads_private(query.request):
        shown = await result_rows.public_repositories(query.tx, shown)
    return [
        row,
        *(test for test in same if test["id"] != row["id"] and test["repository_id"] in shown | owners),
    ]


async def _log_lines(query: Query, failures: Sequence[FailureOfTest]) -> dict[tuple[int, int, str], JobLine]:
    """Return the log lines that explain the failed jobs of a test, as far as they may be read."""
    runs = {
        (str(failure["run_id"]), failure["run_attempt"])
        for failure in failures[:LOGS]
        if failure["job_id"] > 0
    }
    repo = query[REPO].casefold()
    subject = BackendsSubject(runs={repo: frozenset(runs)} if runs else {}, url="")
    lines = await failure_lines.backend_lines(query.tx, subject) if runs else {}
    return {(int(line.run_id), line.run_attempt, line.job): line for line in lines.get(repo, ()) if line.url}


def _line(line: EnvironmentLine) -> TestLine:
    return TestLine(
        backend=line.repo if line.backend else None,
        env_group=line.env_group,
        status=line.word,
        slower=SlowerTest(**line.slower._asdict()) if line.slower else None,
        results=[
            fill_struct(
                TestResult,
                {"attempts": result.case.attempts, "time_ms": result.case.time_ms, "at": result.job["at"]},
                outcome=result.word,
                sha=tested_commit(result.job),
                job_id=_github(result.job["job_id"]),
            )
            for result in line.results
        ],
    )


def _failure(failure: FailureOfTest, test: KnownTest) -> TestFailure:
    log = test.log_line(failure)
    return fill_struct(
        TestFailure,
        failure,
        outcome=describe_outcome(failure["outcome"], flaky=failure["flaky"]),
        log=log.url if log else None,
        sha=failure["head_sha"],
        run_id=_github(failure["run_id"]),
        job_id=_github(failure["job_id"]),
        pr=failure["pr_number"],
        properties=failure["properties"] or {},
        flags=failure["flags"] or {},
        report_properties=failure["report_properties"] or {},
    )


def _github(number: int) -> int | None:
    """Return GitHub's id, or None: our own ids, for what GitHub does not know, are negative."""
    return number if number > 0 else None
