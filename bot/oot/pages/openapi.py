"""Operations of the API that read results: of backends, pull requests and commits."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from bot.oot.pages import answers, api, crcr, metrics_page
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import matching

SHA = Annotated[str, matching(parameters.SHA)]
NOTHING: op.Refusal = (404, "not_found", "nothing of that name may be shown")
UNKNOWN_BACKEND: op.Refusal = (404, "unknown_backend", "not on the allowlist, and it has never reported")
REPORTED = "|".join(parameters.REPORTED)
EVENT = op.in_query(
    "event",
    Annotated[str, matching(f"({REPORTED})(,({REPORTED}))*")],
    "only jobs of this event, or of several",
)
MATCHING = op.in_query("q", op.Text, "only backends whose name or device contains these words")
LEVEL = op.whole("level", 4, "only backends of this level")
DAYS = op.whole("days", parameters.MOST_DAYS, "the window, counted back from now", default=parameters.DAYS)

_read = partial(
    op.Operation,
    topic=op.Topic("Results", "What the pages show."),
    callers=op.READER,
    refusals=[op.WRONG_PARAMETER, NOTHING, *op.READING],
)
_read_backend = partial(_read, refusals=[op.WRONG_PARAMETER, NOTHING, UNKNOWN_BACKEND, *op.READING])
OPERATIONS = (
    _read(
        "GET /api/oot/summary",
        "summary",
        "Health of every backend",
        answers.Summary,
        parameters=[DAYS, LEVEL, MATCHING, EVENT],
    ),
    _read_backend(
        "GET /api/oot/backends/{org}/{repo}",
        "backend",
        "Health and jobs of one backend",
        answers.BackendAnswer,
        parameters=[*op.repository("org"), DAYS, EVENT, op.limit(api.JOBS), op.before()],
    ),
    _read_backend(
        "GET /api/oot/backends/{org}/{repo}/jobs.csv",
        "backendJobs",
        "The jobs of one backend as CSV",
        op.Content(
            str,
            "The newest jobs, after a line of names; no cell is a formula. The Link header's `next` has more",
            media_type="text/csv",
        ),
        parameters=[
            *op.repository("org"),
            DAYS,
            EVENT,
            op.limit(api.CSV_ROWS, most=api.MOST_CSV_ROWS),
            op.before(),
        ],
    ),
    _read(
        "GET /api/oot/pulls/{owner}/{repo}/{number}",
        "pullRequest",
        "Results of a pull request",
        answers.PullAnswer,
        parameters=[
            *op.repository(),
            op.in_path("number", op.Number, "number of the pull request"),
            op.in_query("sha", SHA, "one of its heads, or the beginning of its SHA"),
            op.limit(api.JOBS_OF_PULL, most=api.MOST_JOBS_OF_PULL),
        ],
        refusals=[
            op.WRONG_PARAMETER,
            NOTHING,
            (404, "unknown_pull_request", "it is unknown, or its repository is private"),
            (404, "unknown_commit", "`sha` is no head of it"),
            *op.READING,
        ],
    ),
    _read(
        "GET /api/oot/commits/{owner}/{repo}/{sha}",
        "commit",
        "Results of a commit",
        answers.CommitAnswer,
        description="Pull requests, pushes, nightly and periodic runs alike.",
        parameters=[
            *op.repository(),
            op.in_path("sha", SHA, "the upstream commit, or the beginning of its SHA"),
            EVENT,
            op.limit(api.JOBS),
        ],
        refusals=[
            op.WRONG_PARAMETER,
            NOTHING,
            (404, "unknown_commit", "no backend has reported on it, or its repository is private"),
            *op.READING,
        ],
    ),
    _read(
        "GET /api/oot/allowlist",
        "allowlist",
        "Backends that take part, and their terms",
        answers.Allowlist,
        refusals=[NOTHING, *op.READING],
    ),
    _read(
        "GET /api/oot/levels",
        "levels",
        "Readiness of backends for promotion or demotion",
        answers.Levels,
        parameters=[MATCHING],
    ),
    _read(
        "GET /api/oot/metrics",
        "backendMetrics",
        "Backends day by day",
        op.Content(
            answers.MetricsAnswer,
            f"{metrics_page.FEWEST} to {metrics_page.MOST} backends, a row for each day",
        ),
        parameters=[
            DAYS,
            LEVEL,
            MATCHING,
            op.whole("from", 100_000, "the first backend, counted from 1, the busiest", default=1),
        ],
    ),
    *crcr.OPERATIONS,
)
