"""Does GitHub's answer ask us to wait, and how long? Read from status, headers and message, never from a class name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

AT_LEAST = 60.0  # seconds, where GitHub names none
AT_MOST = 3700.0  # seconds: a reset is never more than an hour away


def wait_for(status: int, headers: Mapping[str, str], body: bytes, *, now: int) -> float | None:
    """Return the seconds to wait, or None when the answer is no rate limit.

    Header names are lower case; `now` is epoch milliseconds. The order is GitHub's: retry-after, then
    x-ratelimit-reset when nothing remains, then a minute.
    """
    if status not in {403, 429}:
        return None
    if (after := _number(headers.get("retry-after"))) is not None:
        return min(max(after, 1.0), AT_MOST)
    if _number(headers.get("x-ratelimit-remaining")) == 0:
        reset = _number(headers.get("x-ratelimit-reset"))
        return AT_LEAST if reset is None else min(max(reset - now / 1000, 1.0), AT_MOST)
    limited = status == 429 or b"rate limit" in body[:4096].lower()
    return AT_LEAST if limited else None


def token_may_be_unknown(status: int, body: bytes) -> bool:
    """Return whether a fresh token may be refused only because not all of GitHub's servers know it yet."""
    return status in {401, 403, 404} and not is_closed(body[:4096].decode(errors="replace"))


def is_closed(said: str) -> bool:
    """Whether a refusal says that the repository is archived or the App suspended there: waiting changes nothing."""
    return any(word in said.lower() for word in ("archived", "suspended"))


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
