"""What is sent to a backend? A `client_payload` that GitHub takes, cut down where the webhook is too large.

GitHub allows at most 10 members and 65,535 characters; a pull request's author must not be able to switch every
backend off with a long description.
"""

from __future__ import annotations

import json
from typing import Any

SCHEMA_VERSION = 1
MOST_CHARACTERS = 65_535

Keep = dict[str, Any]
_USER: Keep = {"login": 1, "id": 1, "type": 1}
_REPO: Keep = {
    "id": 1, "name": 1, "full_name": 1, "private": 1, "fork": 1, "html_url": 1, "clone_url": 1, "default_branch": 1,
    "owner": _USER,
}  # fmt: skip
_SIDE: Keep = {"ref": 1, "sha": 1, "label": 1, "user": _USER, "repo": _REPO}
ESSENTIAL: Keep = {
    "action": 1, "number": 1, "before": 1, "after": 1, "ref": 1, "created": 1, "deleted": 1, "forced": 1, "compare": 1,
    "repository": _REPO, "sender": _USER, "label": {"name": 1},
    "head_commit": {"id": 1, "message": 1, "timestamp": 1},
    "pull_request": {
        "id": 1, "number": 1, "title": 1, "body": 1, "state": 1, "draft": 1, "merged": 1, "merge_commit_sha": 1,
        "html_url": 1, "author_association": 1, "created_at": 1, "updated_at": 1, "commits": 1, "changed_files": 1,
        "user": _USER, "labels": {"name": 1}, "head": _SIDE, "base": _SIDE,
    },
}  # fmt: skip
LONG_TEXTS = (("pull_request", "body"), ("head_commit", "message"), ("pull_request", "title"))
LONG_LISTS = (("pull_request", "labels"),)


def client_payload(
    *,
    event_type: str,
    delivery_id: str,
    payload: dict[str, Any],
    callback_url: str,
    callback_token: str,
) -> dict[str, Any]:
    """Return the `client_payload`; `payload.truncated` names what had to be cut, if anything."""

    def wrap(inner: dict[str, Any]) -> dict[str, Any]:
        return {
            "event_type": event_type,
            "delivery_id": delivery_id,
            "schema_version": SCHEMA_VERSION,
            "payload": inner,
            "callback_url": callback_url,
            "callback_token": callback_token,
        }

    if size(wrap(payload)) <= MOST_CHARACTERS:
        return wrap(payload)
    cut: list[str] = []
    inner = _keep(payload, ESSENTIAL, "", cut)
    inner["truncated"] = cut[:100]
    for outer, name in LONG_TEXTS:
        over = size(wrap(inner)) - MOST_CHARACTERS
        if over <= 0:
            break
        _shorten(inner, outer, name, over)
    for outer, name in LONG_LISTS:
        if size(wrap(inner)) > MOST_CHARACTERS:
            inner[outer].pop(name, None)
            inner["truncated"].append(f"{outer}.{name}")
    return wrap(inner)


def size(value: dict[str, Any]) -> int:
    """Return the characters a value takes as it is sent: JSON with everything but ASCII escaped."""
    return len(json.dumps(value))


def _keep(value: dict[str, Any], keep: Keep, path: str, cut: list[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, inner in value.items():
        wanted = keep.get(name)
        if wanted is None:
            cut.append(path + name)
        elif isinstance(wanted, dict) and isinstance(inner, dict):
            kept[name] = _keep(inner, wanted, f"{path}{name}.", cut)
        elif isinstance(wanted, dict) and isinstance(inner, list):
            kept[name] = [_keep(item, wanted, "", []) for item in inner if isinstance(item, dict)]
        else:
            kept[name] = inner
    return kept


def _shorten(inner: dict[str, Any], outer: str, name: str, over: int) -> None:
    holder = inner.get(outer)
    text = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or not isinstance(text, str):
        return
    inner["truncated"].append(f"{outer}.{name}")
    over += len(outer) + len(name) + 10  # the name just added to the list
    length = len(text)
    while length and len(json.dumps(text[:length])) > len(json.dumps(text)) - over:
        length = length * 9 // 10
    holder[name] = text[:length]
