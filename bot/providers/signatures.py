"""Signatures of CircleCI's and Buildkite's webhooks, over the raw bytes of the body; compared in constant time."""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SKEW = 300  # seconds a signed time may differ from ours: what is sent again later is refused
PARTS_MOST = 20
_SIGNED = re.compile(r"timestamp=([0-9]{1,12}),signature=([0-9a-f]{64})")


def verify_circleci(header: str, body: bytes, secrets: Iterable[str]) -> list[str]:
    """Return the secrets that `v1=` of the header was made with; other versions count for nothing.

    https://circleci.com/docs/webhooks/
    """
    given = [
        part.strip().removeprefix("v1=")
        for part in header.split(",")[:PARTS_MOST]
        if part.strip().startswith("v1=")
    ]
    return [
        secret for secret in secrets if _is_among(given, hmac.digest(secret.encode(), body, "sha256").hex())
    ]


def verify_buildkite(header: str, body: bytes, tokens: Iterable[str], *, now: float) -> list[str]:
    """Return the tokens that the header's signature was made with, unless its time is too far from `now` (seconds).

    https://buildkite.com/docs/apis/webhooks/pipelines
    """
    found = _SIGNED.fullmatch(header.replace(" ", ""))
    if found is None or abs(now - int(found[1])) > SKEW:
        return []
    given, signed = found[2], b"%b.%b" % (found[1].encode(), body)
    return [
        token
        for token in tokens
        if hmac.compare_digest(given, hmac.digest(token.encode(), signed, "sha256").hex())
    ]


def signed_at(header: str) -> str:
    """Return the time in Buildkite's signature as it is written, "" without one."""
    found = _SIGNED.fullmatch(header.replace(" ", ""))
    return found[1] if found else ""


def same_tokens(header: str, tokens: Iterable[str]) -> list[str]:
    """Return the tokens that a header holds as they are."""
    return [token for token in tokens if header and _same(header, token)]


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


def _is_among(given: Iterable[str], expected: str) -> bool:
    return any([_same(one, expected) for one in given])  # noqa: C419 - each is compared, whichever is right
