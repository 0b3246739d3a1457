"""What GitHub's refusals mean: one table of every call that is made, with the refusals that are not final.

GitHub announces an object before all of its servers know it: for some seconds, longer on a bad day, it answers 404 or
422 to a call about a new commit, pull request, run or job. Those answers are tried again while the object is young.
Every other refusal (4xx that is no rate limit) is final: repeating the call unchanged cannot help.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from bot.core.errors import GitHubRefused, RetryLater

YOUNG = 120_000  # milliseconds after an object was announced in which GitHub may not know it yet
SOONEST, LATEST = 2.0, 30.0  # seconds until it is asked again

_NONE: frozenset[int] = frozenset()
_404 = frozenset({404})
_404_422 = frozenset({404, 422})
_404_410 = frozenset({404, 410})
_NO_COMMIT = frozenset({404, 409, 422})  # 409: nor any other


class Call(NamedTuple):
    """One call, and what its refusals say."""

    method: str
    path: str  # without the query; below the repository where it does not begin with a slash
    not_yet: frozenset[int] = _NONE  # while what it is about is young: GitHub may not know it yet
    gone: frozenset[int] = _NONE  # otherwise: it was deleted, or never was


CALLS = (
    # the App itself, and accounts
    Call("GET", "/app"),
    Call("GET", "/app/hook/config"),
    Call("PATCH", "/app/hook/config"),
    Call("GET", "/app/hook/deliveries"),
    Call("GET", "/app/hook/deliveries/{id}", gone=frozenset({404, 410, 422})),  # it has left the log
    Call("POST", "/app/hook/deliveries/{id}/attempts", gone=frozenset({404, 410, 422})),
    Call("GET", "/app/installations"),
    Call("POST", "/app/installations/{installation}/access_tokens"),
    Call("GET", "/repos/{owner}/{name}/installation"),
    Call("GET", "/search/issues"),
    # a repository: it exists before an App is installed on it
    Call("GET", ""),
    Call("GET", "collaborators/{login}/permission"),
    Call("GET", "contents/{+path}", gone=_404),
    Call("GET", "rules/branches/{branch}"),
    Call("POST", "dispatches"),
    Call("POST", "actions/workflows/{file}/dispatches", gone=_404),  # there is no such workflow
    # commits: 422 "No commit found for SHA"
    Call("GET", "commits"),
    Call("GET", "commits/{sha}", not_yet=_404_422, gone=_NO_COMMIT),
    Call("GET", "commits/{sha}/check-runs", not_yet=_404_422),
    Call("GET", "commits/{sha}/branches-where-head", not_yet=_404_422, gone=_NO_COMMIT),
    Call("POST", "git/refs"),
    Call("GET", "compare/{basehead}", not_yet=_404_422, gone=_NO_COMMIT),
    # check runs
    Call("POST", "check-runs", not_yet=_404_422),
    Call("GET", "check-runs/{id}", not_yet=_404, gone=_404_410),
    Call("PATCH", "check-runs/{id}", gone=_404),
    Call("GET", "check-runs/{id}/annotations", gone=_404),
    # pull requests, issues and comments
    Call("GET", "pulls"),
    Call("GET", "pulls/{number}", not_yet=_404, gone=_404),
    Call("GET", "pulls/{number}/files", not_yet=_404_422),
    Call("GET", "pulls/{number}/commits", not_yet=_404),
    Call("GET", "issues/{number}", not_yet=_404, gone=_404_410),
    Call("GET", "issues/{number}/labels", not_yet=_404),
    Call("GET", "issues/{number}/comments", not_yet=_404, gone=_404_410),
    Call("POST", "issues/{number}/comments", not_yet=_404, gone=_404_410),
    Call("PATCH", "issues/comments/{id}", gone=_404_410),
    Call("POST", "issues/comments/{id}/reactions", not_yet=_404, gone=_404_410),
    # workflow runs, jobs and what they left
    Call("GET", "actions/runs"),
    Call("GET", "actions/runs/{run}", not_yet=_404, gone=_404_410),
    Call("POST", "actions/runs/{run}/cancel", not_yet=_404),  # 409: it has ended, its own conclusion stands
    Call("POST", "actions/runs/{run}/rerun", not_yet=_404),
    Call("POST", "actions/runs/{run}/rerun-failed-jobs", not_yet=_404),
    Call("GET", "actions/runs/{run}/jobs", not_yet=_404),
    Call("GET", "actions/runs/{run}/artifacts", not_yet=_404, gone=_404),
    Call("GET", "actions/runs/{run}/attempts/{attempt}", not_yet=_404, gone=_404_410),
    Call("GET", "actions/runs/{run}/attempts/{attempt}/jobs", not_yet=_404, gone=_404),
    Call("POST", "actions/jobs/{job}/rerun", not_yet=_404),
    Call("GET", "actions/jobs/{job}", not_yet=_404, gone=_404_410),
    Call("GET", "actions/jobs/{job}/logs", gone=_404_410),  # a new one has waits of its own: see fetch_log
    Call("GET", "actions/artifacts/{id}/zip", not_yet=_404, gone=_404_410),
)


def find_call(method: str, path: str) -> Call | None:
    """Return the line of a call; `path` begins behind the address of the API, and may have a query."""
    plain = path.partition("?")[0]
    return next(
        (call for call in CALLS if call.method == method and _pattern(call.path).fullmatch(plain)), None
    )


def judge_refusal(
    error: GitHubRefused, method: str, path: str, *, age: int | None
) -> GitHubRefused | RetryLater:
    """Return what a refusal means: RetryLater while what is called about may be unknown yet, else the refusal.

    `age` is in milliseconds; None: the caller does not know it, and is told by the error's `not_yet`.
    """
    call = find_call(method, path)
    if call is None:
        return error
    error.not_yet, error.gone = error.status in call.not_yet, error.status in call.gone
    return wait_while_young(error, age) or error if age is not None else error


def wait_while_young(error: GitHubRefused, age: int) -> RetryLater | None:
    """Return how to try again where GitHub may not know an object of this age yet, None where a refusal is final."""
    if not error.not_yet or age >= YOUNG:
        return None
    return RetryLater(f"GitHub may not know it yet: {error}", after=min(max(age / 2000, SOONEST), LATEST))


@functools.cache
def _pattern(path: str) -> re.Pattern[str]:
    """Return what the path of a call matches."""
    parts = re.split(r"(\{\+?\w+\})", path)
    text = "".join(
        (".+" if part.startswith("{+") else "[^/]+") if part.startswith("{") else re.escape(part)
        for part in parts
    )
    if path.startswith("/"):
        return re.compile(text)
    return re.compile(rf"/repos/[^/]+/[^/]+/{text}" if path else r"/repos/[^/]+/[^/]+")
