"""GitHub's responses: rate limits, refusals and what gidgethub may read of them.

Limits are read from status, headers and message, never from an exception's class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from bot.core.errors import GitHubRefused, RetryLater

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_WAIT = 60.0  # seconds, where GitHub names none
MAX_WAIT = 3700.0  # seconds: a reset is never more than an hour away
MOVED = frozenset({301, 302, 307, 308})  # not followed: the repository they lead to is not listed


@dataclass(frozen=True, kw_only=True)
class Response:
    """One HTTP response, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def wait_for(status: int, headers: Mapping[str, str], body: bytes, *, now: int) -> float | None:
    """Return the seconds to wait, or None when the response is no rate limit.

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
    """Return what gidgethub reads without surprises: errors raised as our own, only known headers."""
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


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
