"""Operations of test results."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from bot.ci.test_results.store import result_rows
from bot.ci.test_results.verdict import Verdict
from bot.ci.test_results.views import backend_tests, head_json, lost_tests, one_test, test_list
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import matching, one_of
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY

NO_RUN: op.Refusal = (404, "not_found", "not the name of a repository, or no run of that id may be shown")
NO_TEST: op.Refusal = (404, "unknown_test", "no test of that id is known there")
NO_COMMIT: op.Refusal = (404, "unknown_commit", "no test of that commit is known")
NO_BACKEND: op.Refusal = (404, "unknown_backend", "nothing of that backend may be shown")
NO_COMPARISON: op.Refusal = (404, "no_comparison", "there is no commit on which both ran tests")
SHA = Annotated[str, matching(parameters.SHA)]

_read = partial(
    op.Operation,
    topic=op.CI,
    callers=op.READER,
    description="With an `ETag`: who sends it as `If-None-Match` gets 304 while nothing has changed.",
)

OPERATIONS = (
    _read(
        "GET /api/ci/tests/{owner}/{repo}",
        "tests",
        "A repository's tests",
        test_list.TestList,
        parameters=[
            *op.repository(),
            op.in_query("q", op.Text, "only tests with these words in name, suite or file"),
            op.in_query("file", op.Text, "only tests of this file"),
            op.in_query("suite", op.Text, "only tests of this suite"),
            op.in_query(
                "state", Annotated[str, one_of(test_list.STATES)], "only tests in this state anywhere"
            ),
            op.in_query("env", op.Text, "only failures in this group of environments"),
            op.in_query("backend", op.Text, "the tests of a backend, owner/repo, instead"),
            op.whole("days", parameters.MOST_DAYS, "the window of failures", default=test_list.DAYS),
            op.in_query(
                "sort",
                Annotated[str, one_of(test_list.SORTS)],
                "the most or newest failures first, the slowest, or all by age; `name` and `slow` count no failures",
                default=test_list.SORTS[0],
            ),
            op.limit(test_list.ROWS),
            op.before(),
        ],
        refusals=[op.WRONG_PARAMETER, NOT_FOUND, UNKNOWN_REPOSITORY, NO_BACKEND, *op.READING],
    ),
    _read(
        "GET /api/ci/tests/{owner}/{repo}/{digest}",
        "test",
        "One test, everywhere it runs",
        one_test.TestAnswer,
        parameters=[
            *op.repository(),
            op.in_path("digest", Annotated[str, matching("[0-9a-f]{16}")], "`test` of another answer"),
            op.whole("days", parameters.MOST_DAYS, "the window of its failures", default=parameters.DAYS),
        ],
        refusals=[op.WRONG_PARAMETER, NOT_FOUND, UNKNOWN_REPOSITORY, NO_TEST, *op.READING],
    ),
    _read(
        "GET /api/ci/lost-tests/{owner}/{repo}",
        "lostTests",
        "What complete runs have less of than the trusted run before",
        lost_tests.LostTestsAnswer,
        parameters=[
            *op.repository(),
            op.whole("days", parameters.MOST_DAYS, "the window of the runs", default=lost_tests.DAYS),
            op.limit(lost_tests.ROWS),
            op.before(op.Number),
        ],
        refusals=[op.WRONG_PARAMETER, NOT_FOUND, UNKNOWN_REPOSITORY, *op.READING],
    ),
    _read(
        "GET /api/ci/runs/{owner}/{repo}/{id}/tests",
        "runTests",
        "The tests of a run",
        head_json.RunTests,
        parameters=[
            *op.repository(),
            op.in_path("id", op.Number, "GitHub's id of the run"),
            op.whole("attempt", 1_000_000, "one attempt only"),
            op.in_query("verdict", Annotated[str, one_of(Verdict)], "only failures that are held to be this"),
            op.limit(head_json.ROWS, most=result_rows.MOST_FAILURES),
            op.before(op.Number),
        ],
        refusals=[op.WRONG_PARAMETER, NO_RUN, *op.READING],
    ),
    _read(
        "GET /api/ci/parity/{org}/{repo}",
        "parity",
        "A backend's tests held against upstream's own",
        backend_tests.ParityAnswer,
        parameters=[
            *op.repository("org"),
            op.in_query(
                "sha", SHA, "a commit of upstream, or its beginning; without it the newest that both tested"
            ),
            op.in_query("device", op.Text, "of upstream's jobs; without it cuda, where upstream ran there"),
        ],
        refusals=[op.WRONG_PARAMETER, NOT_FOUND, NO_BACKEND, NO_COMPARISON, *op.READING],
    ),
    _read(
        "GET /api/ci/compare/{owner}/{repo}",
        "compareTests",
        "What changed between two commits, test by test",
        head_json.ComparedTests,
        parameters=[
            *op.repository(),
            op.needed("base", SHA, "a commit, or its beginning"),
            op.needed("head", SHA, "a commit, or its beginning"),
        ],
        refusals=[op.WRONG_PARAMETER, NOT_FOUND, UNKNOWN_REPOSITORY, NO_COMMIT, *op.READING],
    ),
)
