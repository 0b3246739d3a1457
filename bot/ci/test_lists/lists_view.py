"""GET /api/ci/{owner}/{repo}/test-times.json and the like: what CI plans its jobs with, as it was made last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.ci.disabled import sent_lists
from bot.ci.test_lists.repository import BACKEND, REFUSALS, find_repository, no_list
from bot.web import operations as op
from bot.web.asked import asking, describe
from bot.web.render_thread import in_render_thread
from bot.web.view import Endpoint
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PARAMETERS = (REPO, BACKEND)
Seconds = dict[str, float]


def _handler(name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    @in_render_thread
    async def answer(request: web.Request) -> web.Response:
        """Answer with a list."""
        async with asking(request, PARAMETERS) as asked:
            repository = await find_repository(asked)
            mark = await sent_lists.mark(asked.tx, repository["repository_id"], name)
            if mark is None:
                raise no_list(repository)
            made = await sent_lists.wanted(asked.tx, request, mark)
        return sent_lists.answer(request, made)

    return answer


def _list(name: str, operation: str, summary: str, content: op.Content) -> Endpoint:
    path = f"/api/ci/{{owner}}/{{repo}}/{name}.json"
    described = op.Operation(
        f"GET {path}",
        operation,
        summary,
        content,
        topic=op.CI,
        callers=op.READER,
        parameters=describe(PARAMETERS),
        refusals=[op.WRONG_PARAMETER, *REFUSALS, *op.READING],
        description="With an `ETag`, good for five minutes.",
    )
    return Endpoint(web.get(path, _handler(name)), described)


ENDPOINTS = (
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
)
