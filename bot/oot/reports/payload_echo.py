"""The echo of our payload in a report, read member by member.

A member of the wrong type is read as UNREADABLE and so differs from whatever we sent; it hides no other member.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class Echo:
    """Values of any type, compared or checked, never trusted. None: absent."""

    upstream_repo: Any = None
    pr_number: Any = None
    head_sha: Any = None
    labels: frozenset[Any] | None = None  # None: absent or truncated


class _Named(msgspec.Struct):
    name: Any = None
    full_name: Any = None


class _Head(msgspec.Struct):
    sha: Any = None


class _Pull(msgspec.Struct):
    number: Any = None
    head: _Head | None = None
    labels: list[_Named] | None = None


class _Payload(msgspec.Struct):
    pull_request: _Pull | None = None
    repository: _Named | None = None
    after: Any = None
    head_sha: Any = None  # as clients write it that make up a payload for a run that was not dispatched
    truncated: Any = None


_quick = msgspec.json.Decoder(_Payload | None)


def read_echo(payload: bytes | msgspec.Raw) -> Echo:
    """Read the echo; only one with unexpected types takes the slow path."""
    try:
        echo = _quick.decode(payload) or _Payload()
    except (msgspec.DecodeError, RecursionError):
        return _slowly(payload)
    pull = echo.pull_request or _Pull()
    labels = [{"name": label.name} for label in pull.labels] if pull.labels is not None else None
    return Echo(
        upstream_repo=echo.repository.full_name if echo.repository else None,
        pr_number=pull.number,
        head_sha=pull.head.sha if pull.head else echo.after or echo.head_sha,
        labels=None if echo.truncated is not None else _names(labels),
    )


def _slowly(payload: bytes | msgspec.Raw) -> Echo:
    try:
        echo = msgspec.json.decode(payload) or None  # what is empty says nothing
    except (msgspec.DecodeError, RecursionError):
        echo = UNREADABLE
    pull = _member(echo, "pull_request")
    return Echo(
        upstream_repo=_member(_member(echo, "repository"), "full_name"),
        pr_number=_member(pull, "number"),
        head_sha=_member(_member(pull, "head"), "sha") or _member(echo, "after") or _member(echo, "head_sha"),
        labels=None if _member(echo, "truncated") is not None else _names(_member(pull, "labels")),
    )


def _member(of: Any, name: str) -> Any:
    """Return a member, None if absent, UNREADABLE if its parent is no object."""
    if isinstance(of, dict):
        return of.get(name)
    return None if of is None else UNREADABLE


def _names(labels: Any) -> frozenset[Any] | None:
    if labels is None:
        return None
    if not isinstance(labels, list):
        return frozenset({UNREADABLE})
    names = [_member(label, "name") for label in labels]
    return frozenset(name if isinstance(name, str) else UNREADABLE for name in names)
