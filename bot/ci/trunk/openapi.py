"""Operations of the grid."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from bot.ci.trunk import api, hud_filter, last_good, numbers_page
from bot.web import operations as op
from bot.web import parameters
from bot.web.answers import matching, one_of

TOPIC = op.Topic("CI", "The repositories' own CI.")
BRANCH = op.in_path("branch", str, "name of the branch; it may contain slashes")
FLAGS = "|".join(hud_filter.HIDABLE)
NOTHING: op.Refusal = (404, "not_found", "not the name of a repository, or of nothing here")
UNHEARD: op.Refusal = (404, "unknown_repository", "nothing of that name may be shown")
UNKNOWN: op.Refusal = (404, "unknown_commit", "`before` is not on the branch")
NO_GOOD: op.Refusal = (404, "no_good_commit", "no commit among the newest is good; `detail` says why")

_read = partial(op.Operation, topic=TOPIC, callers=op.READER)
FILTERS = (
    op.whole("per", hud_filter.LINES_MOST, "how many commits", default=hud_filter.LINES),
    op.in_query("before", Annotated[str, matching(parameters.SHA)], "`next` of the page before"),
    op.in_query("name", op.Text, "only jobs whose name has this in it, or matches /pattern/ (RE2)"),
    op.in_query("group", op.Text, "only jobs of this group"),
    op.in_query(
        "hide", Annotated[str, matching(f"({FLAGS})(,({FLAGS}))*")], "jobs left out, by kind; commas between"
    ),
    op.in_query(
        "only", Annotated[str, one_of(word for word in hud_filter.ONLY if word)], "only jobs of this kind"
    ),
    op.in_query("shards", Annotated[str, one_of(["1"])], "every shard as a column of its own"),
)


def _of_days(page: str, name: str, summary: str, answer: type) -> op.Operation:
    """Return the operation behind a page about some days of a branch."""
    return _read(
        f"GET /api/ci/{page}/{{owner}}/{{repo}}",
        name,
        summary,
        answer,
        parameters=[
            *op.repository(),
            op.whole(
                "days", parameters.MOST_DAYS, "the window, counted back from now", default=parameters.DAYS
            ),
            op.in_query("branch", op.Text, "name of the branch; without it the default branch"),
        ],
        refusals=[op.WRONG_PARAMETER, NOTHING, UNHEARD, *op.READING],
    )


OPERATIONS = (
    _read(
        "GET /api/ci/hud/{owner}/{repo}/{branch}",
        "hud",
        "A branch, commit by job",
        api.Hud,
        parameters=[*op.repository(), BRANCH, *FILTERS],
        refusals=[op.WRONG_PARAMETER, NOTHING, UNHEARD, UNKNOWN, *op.READING],
    ),
    _read(
        "GET /api/ci/{owner}/{repo}/last-good",
        "lastGood",
        "The newest commit on which all selected jobs passed",
        api.LastGood,
        parameters=[
            *op.repository(),
            op.in_query("branch", op.Text, "name of the branch; without it the default branch"),
            op.in_query(
                "jobs",
                str,
                "jobs that have to pass: `blocking`, or a pattern (RE2)",
                default=last_good.BLOCKING,
            ),
            op.in_query(
                "backends", op.Text, "backends that have to pass as well, owner/repo; commas between"
            ),
        ],
        refusals=[op.WRONG_PARAMETER, NOTHING, UNHEARD, NO_GOOD, *op.READING],
    ),
    _of_days("metrics", "trunkMetrics", "A branch over days", numbers_page.TrunkMetrics),
    _of_days("reliability", "reliability", "How often the jobs of a branch fail", numbers_page.Reliability),
    _read(
        "GET /api/ci/queue/{owner}/{repo}",
        "runnerQueue",
        "What waits for which runner",
        numbers_page.Queue,
        parameters=[*op.repository()],
        refusals=[NOTHING, UNHEARD, *op.READING],
    ),
)
