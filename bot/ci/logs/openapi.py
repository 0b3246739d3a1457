"""Operations of logs and failures."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from bot.ci.logs.parse.rules import KINDS
from bot.ci.logs.store import search_rows
from bot.ci.logs.views import (
    branch_search,
    commit_search,
    failure_answers,
    failures,
    log_lines,
    search_answers,
)
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import matching, one_of

NO_LOG: op.Refusal = (404, "not_found", "no log of that commit or branch may be shown")
TOO_MANY: op.Refusal = (
    429,
    "rate_limited",
    "two searches run already, or the address has had ten in a minute",
)
NOTHING: op.Refusal = (404, "not_found", "there is no failure of that signature")

_read = partial(
    op.Operation,
    topic=op.Topic("CI", "The repositories' own CI, as the App collects it."),
    callers=op.READER,
)
OPERATIONS = (
    _read(
        "GET /api/ci/logs/{owner}/{repo}/{id}",
        "ciLogLines",
        "Lines of a job's log",
        log_lines.LogLines,
        parameters=[
            *op.repository(),
            op.in_path("id", op.Number, "GitHub's id of the job"),
            op.whole("from", log_lines.NUMBER_MOST, "the first line", default=1),
            op.whole("to", log_lines.NUMBER_MOST, f"the last line, at most {log_lines.LINES_MOST:,} later"),
        ],
        refusals=[op.WRONG_PARAMETER, (404, "not_found", "no such log may be shown"), *op.READING],
    ),
    _read(
        "GET /api/ci/logs/{owner}/{repo}/commit/{sha}",
        "ciLogSearch",
        "Lines of a commit's logs that match a pattern",
        commit_search.LogSearch,
        parameters=[
            *op.repository(),
            op.in_path("sha", Annotated[str, matching(parameters.SHA)], "the whole SHA of the commit"),
            op.needed(
                "q", op.Text, f"a regular expression of RE2, at most {search_answers.PATTERN_MOST} characters"
            ),
            op.whole("run", commit_search.RUN_MOST, "a run; left out: all runs of the commit"),
            op.whole("from", search_rows.LOGS_MOST, "the log to go on with, `next` of an answer", default=1),
        ],
        refusals=[op.WRONG_PARAMETER, NO_LOG, TOO_MANY, *op.READING],
    ),
    _read(
        "GET /api/ci/logs/{owner}/{repo}",
        "ciBranchLogSearch",
        "Lines of the logs of a branch's newest commits that match a pattern",
        branch_search.BranchLogSearch,
        parameters=[
            *op.repository(),
            op.needed(
                "q", op.Text, f"a regular expression of RE2, at most {search_answers.PATTERN_MOST} characters"
            ),
            op.in_query("branch", op.Text, "the branch; left out: the default one"),
            op.whole(
                "commits",
                branch_search.COMMITS_MOST,
                f"how many commits are looked at; with `days` all of them, up to {branch_search.COMMITS_MOST}",
                default=branch_search.COMMITS,
            ),
            op.whole("days", branch_search.DAYS_MOST, "only commits of so many days"),
            op.in_query(
                "before",
                Annotated[str, matching(branch_search.CURSOR)],
                "where to go on, `next` of an answer",
            ),
        ],
        refusals=[op.WRONG_PARAMETER, NO_LOG, TOO_MANY, *op.READING],
    ),
    _read(
        "GET /api/ci/failures",
        "ciFailures",
        "Failures by the jobs they cost",
        failure_answers.Failures,
        parameters=[
            op.in_query("repo", op.Text, "only those seen in this repository"),
            op.in_query("kind", Annotated[str, one_of(KINDS)], "only of this kind"),
            op.whole(
                "days", parameters.MOST_DAYS, "the window, counted back from now", default=failures.WINDOW
            ),
        ],
        refusals=[op.WRONG_PARAMETER, *op.READING],
    ),
    _read(
        "GET /api/ci/failures/{signature}",
        "ciFailure",
        "A failure, day by day, with samples",
        failure_answers.FailureAnswer,
        parameters=[op.in_path("signature", Annotated[str, matching("^[0-9a-f]{64}$")], "its signature")],
        refusals=[NOTHING, *op.READING],
    ),
)
