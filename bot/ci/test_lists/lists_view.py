"""GET /api/ci/{owner}/{repo}/test-times.json and the like: what CI plans its jobs with, as it was made last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.ci.disabled import list_rows, sent_lists
from bot.ci.disabled import rows as disabled_rows
from bot.ci.trunk import reading
from bot.oot.allowlist import rows as allowlists
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.asked import asking, describe
from bot.web.refusals import NOT_FOUND, UNKNOWN_BACKEND, UNKNOWN_REPOSITORY, Refused, unknown_backend
from bot.web.render_thread import in_render_thread
from bot.web.view import Endpoint
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bot.ci.trunk.store.rows import RepositoryRow
    from bot.core.errors import Rejected
    from bot.web.asked import Asked

BACKEND = declare.another_repository("backend", "the times of a backend instead, owner/repo")
NO_LIST = Refused(404, "no_list", "no times are known yet")
REFUSALS = (NOT_FOUND, UNKNOWN_REPOSITORY, NO_LIST, UNKNOWN_BACKEND)
PARAMETERS = (REPO, BACKEND)
Seconds = dict[str, float]


async def find_repository(asked: Asked) -> RepositoryRow:
    """Return the repository; raises Rejected 404."""
    repository = (await reading.find_branch(asked.tx, asked.hidden, asked[REPO], "")).repository
    backend = asked[BACKEND]
    if not backend:
        return repository
    listed = await allowlists.in_force(asked.tx)
    entry = listed.find(backend) if listed else None
    if entry is None or entry.level < disabled_rows.LEAST_LEVEL or asked.hidden.has(entry.repo):
        raise unknown_backend(backend)
    return (await reading.find_branch(asked.tx, asked.hidden, entry.repo, "")).repository


def no_list(repository: RepositoryRow) -> Rejected:
    """Return the refusal where no times of tests are known."""
    return NO_LIST.because(f"no times of tests are known of {repository['full_name']} yet")


def _handler(name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    @in_render_thread
    async def answer(request: web.Request) -> web.Response:
        """Answer with a list."""
        async with asking(request, PARAMETERS) as asked:
            repository = await find_repository(asked)
            mark = await list_rows.find_mark(asked.tx, repository["repository_id"], name)
            if mark is None:
                raise no_list(repository)
            made = await sent_lists.page_for_request(asked.tx, request, mark)
        return sent_lists.send_list(request, made)

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
