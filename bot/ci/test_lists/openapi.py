"""Operations of the lists that CI is planned with."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Meta

from bot.ci.disabled.openapi import NO_BACKEND
from bot.ci.test_lists import api, suggestions_page
from bot.ci.trunk.openapi import NOTHING, TOPIC, UNHEARD
from bot.web import operations as op

NO_LIST: op.Refusal = (404, "no_list", "no times are known yet")
BACKEND = op.in_query("backend", op.Text, "the times of a backend instead, owner/repo")
REFUSALS = (op.WRONG_PARAMETER, NOTHING, UNHEARD, NO_LIST, NO_BACKEND, *op.READING)
FIVE_MINUTES = "With an `ETag`, good for five minutes."
Seconds = dict[str, float]

_read = partial(op.Operation, topic=TOPIC, callers=op.READER)


def _list(name: str, operation: str, summary: str, content: op.Content) -> op.Operation:
    return _read(
        f"GET /api/ci/{{owner}}/{{repo}}/{name}.json",
        operation,
        summary,
        content,
        parameters=[*op.repository(), BACKEND],
        refusals=REFUSALS,
        description=FIVE_MINUTES,
    )


WHERE = (
    *op.repository(),
    op.needed("n", Annotated[int, Meta(ge=1, le=api.SHARDS_MOST)], "how many shards"),
    op.in_query("base", op.Text, "base name of the job: what is built"),
    op.in_query("config", op.Text, "its configuration"),
    BACKEND,
)

OPERATIONS = (
    _list(
        "test-times",
        "testTimes",
        "How long the files of tests take",
        op.Content(
            dict[str, dict[str, Seconds]],
            "seconds by base name, configuration and file; `default` stands for those not known",
            {"linux-jammy": {"default": {"test_ops": 312.5}}},
        ),
    ),
    _list(
        "test-class-times",
        "testClassTimes",
        "How long the classes of tests take",
        op.Content(
            dict[str, dict[str, dict[str, Seconds]]],
            "seconds by base name, configuration, file and class; `default` stands for those not known",
            {"linux-jammy": {"default": {"test_ops": {"TestCommon": 200.0}}}},
        ),
    ),
    _list(
        "slow-tests",
        "slowTests",
        "Tests that take more than a minute",
        op.Content(Seconds, "seconds by test", {"test_x (__main__.TestY)": 75.2}),
    ),
    _read(
        "GET /api/ci/disabled/{owner}/{repo}/suggestions",
        "disableSuggestions",
        "Tests to disable, and issues to close",
        suggestions_page.Suggestions,
        parameters=[*op.repository()],
        refusals=[NOTHING, UNHEARD, *op.READING],
        description="404 unless `CI_DISABLE=suggest`.",
    ),
    _read(
        "GET /api/ci/{owner}/{repo}/shards.json",
        "shards",
        "A suite in shards that take about the same time",
        api.Shards,
        parameters=[*WHERE, op.in_query("tests", op.Text, "names of files, commas between; without any all")],
        refusals=REFUSALS,
    ),
    _read(
        "POST /api/ci/{owner}/{repo}/shards.json",
        "shardsOf",
        "The same for many tests",
        api.Shards,
        parameters=WHERE,
        body=op.Content(
            list[api.Name], f"at most {api.TESTS_MOST:,} names of files", ["test_ops", "test_nn"]
        ),
        refusals=[
            (400, "invalid_body", "the body is no list of names"), *REFUSALS, *op.SENDING[:-1],
        ],
    ),
)  # fmt: skip
