"""Operations of what is disabled."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Meta

from bot.ci.disabled import api
from bot.web import operations as op
from bot.web.refusals import NOT_FOUND, UNKNOWN_BACKEND, UNKNOWN_REPOSITORY

ISSUE = "https://github.com/owner/repo/issues/123"
# what lists.Tests and lists.Jobs are; generators of clients know no tuples
OF_TESTS = dict[str, Annotated[list[str | list[str]], Meta(min_length=3, max_length=3)]]
OF_JOBS = dict[str, Annotated[list[str], Meta(min_length=6, max_length=6)]]
NO_LIST: op.Refusal = (404, "no_list", "no list is made of the issues of this repository")

_read = partial(op.Operation, topic=op.CI, callers=op.READER)


def _list(name: str, operation: str, summary: str, content: op.Content) -> op.Operation:
    return _read(
        f"GET /api/ci/{{owner}}/{{repo}}/{name}.json",
        operation,
        summary,
        content,
        parameters=[
            *op.repository(),
            op.whole(
                "pr",
                api.MOST_PULL,
                "a pull request: without the issues that its description or commits close",
            ),
            op.in_query("backend", op.Text, "for a backend, owner/repo: with what its own issues say"),
        ],
        refusals=[op.WRONG_PARAMETER, NOT_FOUND, UNKNOWN_REPOSITORY, NO_LIST, UNKNOWN_BACKEND, *op.READING],
        description="With an `ETag`, good for five minutes.",
    )


JOBS = op.Content(
    OF_JOBS,
    "by job: author, number and address of the issue, workflow, platform, configuration",
    {"pull / linux / test": ["octocat", "123", ISSUE, "pull", "linux", "test"]},
)

OPERATIONS = (
    _list(
        "disabled-tests-condensed",
        "disabledTests",
        "Tests that CI may skip",
        op.Content(
            OF_TESTS,
            "by test: number and address of the issue, and the platforms (none: all)",
            {"test_x (__main__.TestY)": ["123", ISSUE, ["linux", "npu"]]},
        ),
    ),
    _list("disabled-jobs", "disabledJobs", "Jobs that CI may skip", JOBS),
    _list("unstable-jobs", "unstableJobs", "Jobs that may fail", JOBS),
    _read(
        "GET /api/ci/disabled/{owner}/{repo}",
        "disabled",
        "The issues that disable something, or do not, and why",
        api.Disabled,
        parameters=[*op.repository()],
        refusals=[NOT_FOUND, UNKNOWN_REPOSITORY, *op.READING],
    ),
)
