"""What does a report say its dispatch was about? The echo of our payload, read member by member.

A member of the wrong type is read as UNREADABLE and so differs from whatever we sent; it hides no other member.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class Echo:
    """What was said, of whatever type: compared or checked, never believed. None: not said."""

    upstream_repo: Any = None
    pr_number: Any = None
    head_sha: Any = None
    labels: frozenset[Any] | None = None  # None: not said, or not in full


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
    truncated: Any = None


_quick = msgspec.json.Decoder(_Payload | None)


def read_echo(payload: bytes | msgspec.Raw) -> Echo:
    """Return what the echo says; only one of unusual types takes the long way."""
    try:
        said = _quick.decode(payload) or _Payload()
    except (msgspec.DecodeError, RecursionError):
        return _slowly(payload)
    pull = said.pull_request or _Pull()
    labels = [{"name": label.name} for label in pull.labels] if pull.labels is not None else None
    return Echo(
        upstream_repo=said.repository.full_name if said.repository else None,
        pr_number=pull.number,
        head_sha=pull.head.sha if pull.head else said.after,
        labels=None if said.truncated is not None else _names(labels),
    )


def _slowly(payload: bytes | msgspec.Raw) -> Echo:
    try:
        said = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        said = UNREADABLE
    pull = _member(said, "pull_request")
    return Echo(
        upstream_repo=_member(_member(said, "repository"), "full_name"),
        pr_number=_member(pull, "number"),
        head_sha=_member(_member(pull, "head"), "sha") or _member(said, "after"),
        labels=None if _member(said, "truncated") is not None else _names(_member(pull, "labels")),
    )


def _member(of: Any, name: str) -> Any:
    """Return a member, None where nothing is said, UNREADABLE where something else stands in its place."""
    if isinstance(of, dict):
        return of.get(name)
    return UNREADABLE if of else None


def _names(labels: Any) -> frozenset[Any] | None:
    if labels is None:
        return None
    if not isinstance(labels, list):
        return frozenset({UNREADABLE})
    names = [_member(label, "name") for label in labels]
    return frozenset(name if isinstance(name, str) else UNREADABLE for name in names)
