"""Operations of test results."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from bot.ci.test_results.pages import head_json, result_rows, test_page
from bot.ci.test_results.verdict import Verdict
from bot.ci.trunk.openapi import NOTHING, TOPIC, UNHEARD
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import matching, one_of

NO_RUN: op.Refusal = (404, "not_found", "not the name of a repository, or no run of that id may be shown")
NO_TEST: op.Refusal = (404, "unknown_test", "no test of that id is known there")
NO_COMMIT: op.Refusal = (404, "unknown_commit", "no test of that commit is known")
SHA = Annotated[str, matching(parameters.SHA)]

_read = partial(op.Operation, topic=TOPIC, callers=op.READER)

OPERATIONS = (
    _read(
        "GET /api/ci/tests/{owner}/{repo}/{digest}",
        "test",
        "One test, everywhere it runs",
        test_page.TestAnswer,
        parameters=[
            *op.repository(),
            op.in_path("digest", Annotated[str, matching("[0-9a-f]{16}")], "`test` of another answer"),
            op.whole("days", parameters.MOST_DAYS, "the window of its failures", default=parameters.DAYS),
        ],
        refusals=[op.WRONG_PARAMETER, NOTHING, UNHEARD, NO_TEST, *op.READING],
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
        "GET /api/ci/compare/{owner}/{repo}",
        "compareTests",
        "What changed between two commits, test by test",
        head_json.ComparedTests,
        parameters=[
            *op.repository(),
            op.needed("base", SHA, "a commit, or its beginning"),
            op.needed("head", SHA, "a commit, or its beginning"),
        ],
        refusals=[op.WRONG_PARAMETER, NOTHING, UNHEARD, NO_COMMIT, *op.READING],
    ),
)
