"""GitHub's responses: rate limits, what its refusals mean, and what an Enterprise Server lacks."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bot.core.errors import GitHubRefused, RetryLater

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_WAIT = 60.0  # seconds, where GitHub names none
MAX_WAIT = 3700.0  # seconds: a reset is never more than an hour away
MOVED = frozenset({301, 302, 307, 308})  # not followed: the repository they lead to is not listed
YOUNG_FOR = 120_000  # milliseconds after an object was announced in which GitHub may not know it yet
SOONEST, LATEST = 2.0, 30.0  # seconds until it is asked again

_NONE: frozenset[int] = frozenset()
_404 = frozenset({404})
_404_422 = frozenset({404, 422})
_404_410 = frozenset({404, 410})
_NO_COMMIT = frozenset({404, 409, 422})  # 409: nor any other
ENTERPRISE_HEADER = "x-github-enterprise-version"  # of every answer
DESCRIBED_ENTERPRISE = (
    "3.17",
    "3.18",
    "3.19",
    "3.20",
    "3.21",
    "3.22",
)  # versions whose description by GitHub was looked at
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})")


@dataclass(frozen=True, kw_only=True)
class Response:
    """One HTTP response, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class KnownCall(NamedTuple):
    """A call of GitHub's API, and what its refusals mean."""

    method: str
    path: str  # without the query; below the repository where it does not begin with a slash
    not_yet: frozenset[int] = _NONE  # while what it is about is young: GitHub may not know it yet
    gone: frozenset[int] = _NONE  # otherwise: it was deleted, or never was


CALLS = (
    # the App itself, and accounts
    KnownCall("GET", "/app"),
    KnownCall("GET", "/app/hook/config"),
    KnownCall("PATCH", "/app/hook/config"),
    KnownCall("GET", "/app/hook/deliveries"),
    KnownCall("GET", "/app/hook/deliveries/{id}", gone=frozenset({404, 410, 422})),  # it has left the log
    KnownCall("POST", "/app/hook/deliveries/{id}/attempts", gone=frozenset({404, 410, 422})),
    KnownCall("GET", "/app/installations"),
    KnownCall("POST", "/app/installations/{installation}/access_tokens"),
    KnownCall("GET", "/repos/{owner}/{name}/installation"),
    KnownCall("GET", "/search/issues"),
    # a repository: it exists before an App is installed on it
    KnownCall("GET", ""),
    KnownCall("GET", "collaborators/{login}/permission"),
    KnownCall("GET", "contents/{+path}", gone=_404),
    KnownCall("GET", "rules/branches/{branch}"),
    KnownCall("POST", "dispatches"),
    KnownCall("POST", "actions/workflows/{file}/dispatches", gone=_404),  # there is no such workflow
    # commits: 422 "No commit found for SHA"
    KnownCall("GET", "commits"),
    KnownCall("GET", "commits/{sha}", not_yet=_404_422, gone=_NO_COMMIT),
    KnownCall("GET", "commits/{sha}/check-runs", not_yet=_404_422),
    KnownCall("GET", "commits/{sha}/branches-where-head", not_yet=_404_422, gone=_NO_COMMIT),
    KnownCall("POST", "git/refs"),
    KnownCall("GET", "compare/{basehead}", not_yet=_404_422, gone=_NO_COMMIT),
    # check runs
    KnownCall("POST", "check-runs", not_yet=_404_422),
    KnownCall("GET", "check-runs/{id}", not_yet=_404, gone=_404_410),
    KnownCall("PATCH", "check-runs/{id}", gone=_404),
    KnownCall("GET", "check-runs/{id}/annotations", gone=_404),
    # pull requests, issues and comments
    KnownCall("GET", "pulls"),
    KnownCall("GET", "pulls/{number}", not_yet=_404, gone=_404),
    KnownCall("GET", "pulls/{number}/files", not_yet=_404_422),
    KnownCall("GET", "pulls/{number}/commits", not_yet=_404),
    KnownCall("GET", "issues/{number}", not_yet=_404, gone=_404_410),
    KnownCall("GET", "issues/{number}/labels", not_yet=_404),
    KnownCall("GET", "issues/{number}/comments", not_yet=_404, gone=_404_410),
    KnownCall("POST", "issues/{number}/comments", not_yet=_404, gone=_404_410),
    KnownCall("PATCH", "issues/comments/{id}", gone=_404_410),
    KnownCall("POST", "issues/comments/{id}/reactions", not_yet=_404, gone=_404_410),
    # workflow runs, jobs and what they left
    KnownCall("GET", "actions/runs"),
    KnownCall("GET", "actions/runs/{run}", not_yet=_404, gone=_404_410),
    KnownCall(
        "POST", "actions/runs/{run}/cancel", not_yet=_404
    ),  # 409: it has ended, its own conclusion stands
    KnownCall("POST", "actions/runs/{run}/rerun", not_yet=_404),
    KnownCall("POST", "actions/runs/{run}/rerun-failed-jobs", not_yet=_404),
    KnownCall("GET", "actions/runs/{run}/jobs", not_yet=_404),
    KnownCall("GET", "actions/runs/{run}/artifacts", not_yet=_404, gone=_404),
    KnownCall("GET", "actions/runs/{run}/attempts/{attempt}", not_yet=_404, gone=_404_410),
    KnownCall("GET", "actions/runs/{run}/attempts/{attempt}/jobs", not_yet=_404, gone=_404),
    KnownCall("POST", "actions/jobs/{job}/rerun", not_yet=_404),
    KnownCall("GET", "actions/jobs/{job}", not_yet=_404, gone=_404_410),
    KnownCall(
        "GET", "actions/jobs/{job}/logs", gone=_404_410
    ),  # a new one has waits of its own: see fetch_log
    KnownCall("GET", "actions/artifacts/{id}/zip", not_yet=_404, gone=_404_410),
)


@dataclass(frozen=True, kw_only=True)
class Lack:
    """A feature of github.com that a server does not have."""

    name: str
    off: str  # what the bot does without it
    since: str = ""  # the first version that has it; empty: none that is described


RUN_DETAILS = Lack(
    name="return_run_details",
    off="the run of a `dispatch: workflow` is known once it reports, not from the dispatch on",
)
MERGE_GROUP = Lack(name="merge_group", off="there are no merge queues, so no gate on their commits")
CHECK_RUN_CLAIM = Lack(name="check_run_id", off="a token of Actions does not say which job reports")
LACKS = (RUN_DETAILS, MERGE_GROUP, CHECK_RUN_CLAIM)


def wait_for(status: int, headers: Mapping[str, str], body: bytes, *, now: int) -> float | None:
    """Return how many seconds to wait, or None when the response is no rate limit.

    Header names are lower case; `now` is epoch milliseconds. The order is GitHub's: retry-after, then
    x-ratelimit-reset when nothing remains, then a minute.
    """
    if status not in {403, 429}:
        return None
    if (after := _number(headers.get("retry-after"))) is not None:
        return min(max(after, 1.0), MAX_WAIT)
    if _number(headers.get("x-ratelimit-remaining")) == 0:
        reset = _number(headers.get("x-ratelimit-reset"))
        return MIN_WAIT if reset is None else min(max(reset - now / 1000, 1.0), MAX_WAIT)
    limited = status == 429 or b"rate limit" in body[:4096].lower()
    return MIN_WAIT if limited else None


def token_may_be_unknown(status: int, body: bytes) -> bool:
    """Whether a fresh token may be refused only because not all of GitHub's servers know it yet."""
    return status in {401, 403, 404} and not is_closed(body[:4096].decode(errors="replace"))


def is_closed(message: str) -> bool:
    """Whether a refusal means that the repository is archived or the App suspended there: waiting changes nothing."""
    return any(word in message.lower() for word in ("archived", "suspended"))


def for_gidgethub(response: Response) -> tuple[int, Mapping[str, str], bytes]:
    """Return a response that gidgethub reads without surprises: only known headers, and errors raised as our own."""
    raise_for_status(response)
    kind = response.headers.get("content-type", "")
    if response.body and "json" in kind:
        try:
            # validated without creating objects: a page of pull requests has megabytes, and gidgethub decodes it again
            msgspec.json.decode(response.body, type=msgspec.Raw)
            response.body.decode()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RetryLater(f"GitHub's answer {response.status} is not JSON") from error
    kept = {name: response.headers[name] for name in ("link", "etag") if name in response.headers}
    if "json" in kind:
        kept["content-type"] = "application/json"
    return response.status, kept, response.body


def raise_for_status(response: Response) -> None:
    """Raise GitHubRefused for anything but success and 304 Not Modified."""
    if response.status < 300 or response.status == 304:
        return
    try:
        error = msgspec.json.decode(response.body)
        message = f"{error.get('message', '')} {error.get('errors', '') or ''}".strip()
    except (msgspec.DecodeError, AttributeError):
        message = response.body[:200].decode("utf-8", "replace")
    raise GitHubRefused(response.status, message[:500])


def find_call(method: str, path: str) -> KnownCall | None:
    """Return the entry of a call; `path` is relative to the address of the API and may have a query."""
    plain = path.partition("?")[0]
    return next(
        (call for call in CALLS if call.method == method and _pattern(call.path).fullmatch(plain)), None
    )


def judge_refusal(
    error: GitHubRefused, method: str, path: str, *, age: int | None
) -> GitHubRefused | RetryLater:
    """Return what a refusal means: RetryLater while what is called about may be unknown yet, else the refusal.

    `age` is in milliseconds; if it is None, the error's `not_yet` tells the caller.
    """
    call = find_call(method, path)
    if call is None:
        return error
    error.not_yet, error.gone = error.status in call.not_yet, error.status in call.gone
    return wait_while_young(error, age) or error if age is not None else error


def wait_while_young(error: GitHubRefused, age: int) -> RetryLater | None:
    """Return RetryLater where GitHub may not know an object of this age yet; None where a refusal is final."""
    if not error.not_yet or age >= YOUNG_FOR:
        return None
    return RetryLater(f"GitHub may not know it yet: {error}", after=min(max(age / 2000, SOONEST), LATEST))


def lacks(version: str, lack: Lack) -> bool:
    """Whether a version lacks a feature; the empty version is github.com, which lacks none.

    A version that is not described counts as the newest one that is.
    """
    if not version:
        return False
    return not lack.since or _numbers(version) < _numbers(lack.since)


def lacking(version: str) -> list[Lack]:
    """Return the features that a version lacks."""
    return [lack for lack in LACKS if lacks(version, lack)]


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


@functools.cache
def _pattern(path: str) -> re.Pattern[str]:
    """Return the pattern of a call's path."""
    parts = re.split(r"(\{\+?\w+\})", path)
    text = "".join(
        (".+" if part.startswith("{+") else "[^/]+") if part.startswith("{") else re.escape(part)
        for part in parts
    )
    if path.startswith("/"):
        return re.compile(text)
    return re.compile(rf"/repos/[^/]+/[^/]+/{text}" if path else r"/repos/[^/]+/[^/]+")


def _numbers(version: str) -> tuple[int, int]:
    match = _VERSION.match(version) or _VERSION.match(DESCRIBED_ENTERPRISE[-1])
    assert match is not None
    return int(match[1]), int(match[2])
